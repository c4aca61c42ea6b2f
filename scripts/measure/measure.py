#!/usr/bin/env python3
"""Measure what the README claims: start-up, time to first token, memory, speed against the machine.

    scripts/measure/measure.py build/hyb FOLDER [--runs 5]

FOLDER is a model folder with tokenizer and template, for example one that
scripts/checkpoints/make_random_model.py wrote. Prints a Markdown table. Run it on a machine that
does nothing else. Times are medians; the files are in the page cache. Memory is the largest Pss of
/proc/PID/smaps_rollup, sampled while a long prompt is taken in and an answer is drawn, against the
packed weights and pools that `hyb fit` predicts.
"""

import argparse
import json
import statistics
import subprocess
import threading
import time

MEGABYTE = 1e6


def seconds_to_run(command):
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def seconds_to_first_byte(command):
    """From the start of the process to the first byte on its stdout."""
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        first = process.stdout.read(1)
        elapsed = time.perf_counter() - begin
        process.stdout.read()
    if process.returncode != 0 or not first:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}, no answer")
    return elapsed


def pss_bytes(pid):
    """Proportional set size of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ProcessLookupError):
        pass
    return 0


def peak_pss(command, interval=0.005):
    """Largest Pss of a process, and how often it was looked at."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        reader = threading.Thread(target=process.stdout.read)  # the pipe must not fill up
        reader.start()
        peak, samples = 0, 0
        while process.poll() is None:
            peak, samples = max(peak, pss_bytes(process.pid)), samples + 1
            time.sleep(interval)
        reader.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    return peak, samples


def hyb_json(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure_memory(hyb, folder, length):
    """(peak, allowed) in bytes of a run that fills most of a sequence of `length` tokens."""
    options = ["--context", str(length), "--pool-memory", "250MB"]
    fit = hyb_json([hyb, "fit", folder, "--json", *options])
    prompt = "The red box holds a coin. " * (length // 30)
    run = [hyb, "run", folder, "--raw", "-p", prompt, "--truncate", "left", "-n", "64",
           "--ignore-eos", *options]
    peak, samples = peak_pss(run)
    if samples < 20:
        raise SystemExit(f"memory: only {samples} samples; use a longer run")
    return peak, fit["weights_bytes"] + fit["pool_bytes"] + 100 * MEGABYTE


def measure(hyb, folder, runs, length):
    subprocess.run(["cat", f"{folder}/model.safetensors"], check=True, stdout=subprocess.DEVNULL)
    version = statistics.median(seconds_to_run([hyb, "--version"]) for _ in range(20))
    yield "`hyb --version`", f"{version * 1e3:.1f} ms", "20 ms"
    first = [hyb, "run", folder, "-p", "Hello, how are you?", "-n", "1", "--ignore-eos"]
    seconds_to_first_byte(first)
    ttft = statistics.median(seconds_to_first_byte(first) for _ in range(runs))
    yield "start to first token of `hyb run`", f"{ttft:.2f} s", "1 s"
    peak, allowed = measure_memory(hyb, folder, length)
    yield (f"largest Pss, sequence of {length} tokens", f"{peak / MEGABYTE:.0f} MB",
           f"{allowed / MEGABYTE:.0f} MB (packed weights + pools + 100 MB)")
    for row in hyb_json([hyb, "bench", folder, "-r", str(runs), "-o", "json"]):
        yield bench_row(row)


def bench_row(row):
    rate = f"{row['avg_ts']:.1f} ± {row['stddev_ts']:.1f} t/s"
    if row["n_gen"]:
        share = row["bytes_per_s"] / row["probe_bytes_per_s"]
        return (f"tg{row['n_gen']}", f"{rate}, {row['bytes_per_s'] / 1e9:.1f} GB/s = {share:.0%} "
                f"of the read probe ({row['probe_bytes_per_s'] / 1e9:.1f} GB/s)", "80 %")
    share = row["flops_per_s"] / row["probe_flops_per_s"]
    return (f"pp{row['n_prompt']}", f"{rate}, {row['flops_per_s'] / 1e9:.0f} GFLOP/s = {share:.0%} "
            f"of the FLOP probe ({row['probe_flops_per_s'] / 1e9:.0f} GFLOP/s)", "60 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hyb", help="the binary")
    parser.add_argument("folder", help="a complete model folder")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each time")
    parser.add_argument("--length", type=int, default=2048, help="of the memory measurement")
    args = parser.parse_args()
    print("| what | measured | aim |\n|---|---|---|")
    for what, measured, aim in measure(args.hyb, args.folder, args.runs, args.length):
        print(f"| {what} | {measured} | {aim} |", flush=True)


if __name__ == "__main__":
    main()
