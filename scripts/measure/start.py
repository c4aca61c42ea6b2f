"""Start-up, time to first token, memory, and speed against the machine.

FOLDER is a model folder with tokenizer and template, as checkpoints/make_random_model.py writes.
Memory is the largest Pss while a long prompt is taken in and an answer is drawn, against the packed
weights and pools that `hyb fit` predicts.
"""

import subprocess
import time

from measure.habits import MEGABYTE, Watch, hyb_json, in_turns, spread

COLUMNS = ("what", "measured", "aim")
SAMPLES_MIN = 20


def add_options(parser):
    parser.add_argument("folder", help="a complete model folder")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each time")
    parser.add_argument("--length", type=int, default=2048, help="of the memory measurement")


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


def memory_row(hyb, folder, length):
    """A run that fills most of a sequence of `length` tokens."""
    options = ["--context", str(length), "--pool-memory", "250MB"]
    fit = hyb_json([hyb, "fit", folder, "--json", *options])
    prompt = "The red box holds a coin. " * (length // 30)
    watch = Watch([hyb, "run", folder, "--raw", "-p", prompt, "--truncate", "left", "-n", "64",
                   "--ignore-eos", *options])
    if watch.samples < SAMPLES_MIN:
        raise SystemExit(f"memory: only {watch.samples} samples; use a longer run")
    allowed = (fit["weights_bytes"] + fit["pool_bytes"]) / MEGABYTE + 100
    return (f"largest Pss, sequence of {length} tokens", f"{watch.pss / MEGABYTE:.0f} MB",
            f"{allowed:.0f} MB (packed weights + pools + 100 MB)")


def bench_row(row):
    rate = f"{row['avg_ts']:.1f} ± {row['stddev_ts']:.1f} t/s"
    if row["n_gen"]:
        share = row["bytes_per_s"] / row["probe_bytes_per_s"]
        return (f"tg{row['n_gen']}", f"{rate}, {row['bytes_per_s'] / 1e9:.1f} GB/s = {share:.0%} "
                f"of the read probe ({row['probe_bytes_per_s'] / 1e9:.1f} GB/s)", "80 %")
    share = row["flops_per_s"] / row["probe_flops_per_s"]
    return (f"pp{row['n_prompt']}", f"{rate}, {row['flops_per_s'] / 1e9:.0f} GFLOP/s = {share:.0%} "
            f"of the FLOP probe ({row['probe_flops_per_s'] / 1e9:.0f} GFLOP/s)", "60 %")


def rows(args):
    run = [args.hyb, "run", args.folder, "-p", "Hello, how are you?", "-n", "1", "--ignore-eos"]
    seconds_to_first_byte(run)  # not counted: the files come into the page cache
    version, first = in_turns(args.rounds, lambda: seconds_to_first_byte([args.hyb, "--version"]),
                              lambda: seconds_to_first_byte(run))
    yield "`hyb --version`", spread([1e3 * each for each in version], 1, " ms"), "20 ms"
    yield "start to first token of `hyb run`", spread(first, 2, " s"), "1 s"
    yield memory_row(args.hyb, args.folder, args.length)
    for row in hyb_json([args.hyb, "bench", args.folder, "-r", str(args.rounds), "-o", "json"]):
        yield bench_row(row)
