#!/usr/bin/env python3
"""Checks and measures hyb on a machine with an NVIDIA card, in nine minutes, without network.

    scripts/gpu_check.sh [--build FOLDER] [--out FILE] [SECTION ...]
    scripts/gpu_check.sh requests                           # another nine minutes

Sections run in order of value, each within its own time; one that is cut says so. Results are JSON
objects, one per line, written as they come: to FILE, or to tests/gpu/results-<card>.jsonl, with the
names of the sections after <card> where some are given. Every line names its section; the first
says what machine and commit they belong to. Exit code 1: something failed.

Sections: conformance and laws (tests of single kernels on the card), memory (bandwidth through two
mappings of the same memory, driver calls), nodes (what a kernel of a graph costs, and what early
starts save), sanitizer, models (tests of whole models), bench, peers; requests, and lanes (prompts
beside answers), run by name only: they take all the time there is. Where nvcc is, what changed is
built.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
PRESETS = ("granite-4.0-h-tiny", "granite-4.0-h-micro", "nemotron-nano-12b-v2",
           "nemotron-3-nano-30b-a3b")
TOTAL_SECONDS = 540
CONFORMANCE = "cuda/conformance"
MODELS = "cuda/golden,cuda/shapes,cuda/reuse"


class Results:
    """Lines go to the file and to stdout at once: what was measured before a cut is kept."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "w", encoding="utf-8")
        self.failed = False

    def add(self, section, **facts):
        line = json.dumps({"section": section, **facts})
        self.file.write(line + "\n")
        self.file.flush()
        print(line, flush=True)
        self.failed = self.failed or facts.get("status", "ok") not in ("ok", "cut", "not here")


def run(command, seconds):
    """Exit code (None: cut), output of both streams, seconds."""
    begin = time.monotonic()
    # Programs that were built elsewhere find the tests' files here.
    environment = {**os.environ, "HYB_TESTS_DIR": str(TOP / "tests")}
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               env=environment)
    try:
        output, _ = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        code = None
    return code, output, round(time.monotonic() - begin, 1)


def status_of(code, passed=0):
    return "cut" if code is None else "ok" if code == passed else "failed"


def tests(results, section, build, seconds, suites, others=""):
    """Test suites on the card, but the others; what fails is in the line."""
    program = [build / "hyb_tests_cuda", f"-ts={suites}", f"-tse={others}"]
    code, output, taken = run(program, seconds)
    counts = re.search(r"test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed", output)
    failures = [line for line in output.splitlines() if "ERROR" in line or "TEST CASE" in line]
    results.add(section, status=status_of(code), seconds=taken, suites=suites,
                cases=[int(n) for n in counts.groups()] if counts else None,
                failures=failures[:20])


def conformance(results, build, seconds):
    tests(results, "conformance", build, seconds, CONFORMANCE)


def laws(results, build, seconds):
    tests(results, "laws", build, seconds, "cuda/*", f"{CONFORMANCE},{MODELS}")


def models(results, build, seconds):
    tests(results, "models", build, seconds, MODELS)


def probe(results, section, program, seconds):
    """The figures that a program prints, one JSON object per line, and how it ended."""
    code, output, taken = run(program, seconds)
    for row in bench_rows(output):
        results.add(section, **row)
    results.add(section, status=status_of(code), seconds=taken,
                text="" if code == 0 else output[-500:])


def memory(results, build, seconds):
    probe(results, "memory", [build / "card_memory"], seconds)


def nodes(results, build, seconds):
    probe(results, "nodes", [build / "card_nodes"], seconds)


def sanitizer(results, build, seconds):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        results.add("sanitizer", status="not here")
        return
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        program = [tool, f"--tool={check}", "--error-exitcode=9", build / "hyb_tests_cuda",
                   "-ts=cuda/conformance,cuda/rms_norm,cuda/linear,cuda/mamba_step,cuda/attention"]
        code, output, taken = run(program, seconds / 4)
        summary = [line for line in output.splitlines() if "ERROR SUMMARY" in line]
        results.add("sanitizer", tool=check, status=status_of(code), seconds=taken,
                    text=(summary or output.splitlines() or [""])[-1])


def bench_rows(output):
    rows = []
    for line in output.splitlines():
        if line.startswith("{"):
            rows.append(json.loads(line))
    return rows


def bench_of(results, section, build, seconds, preset, what, arguments):
    """Rows of one call on synthetic weights in a published shape, and how it ended: a row that says
    itself that it is not ok is a failure, too."""
    if seconds < 5:
        results.add(section, model=preset, what=what, status="cut")
        return
    config = TOP / "models" / "presets" / preset
    code, output, taken = run([build / "hyb", "bench", config, "--device", "cuda",
                               "--random-weights", "1", "-o", "jsonl", *arguments], seconds)
    faults = []
    for row in bench_rows(output):
        results.add(section, model=preset, what=what, row=row)
        if row.get("status", "ok") != "ok":
            faults.append(row["status"])
    results.add(section, model=preset, what=what,
                status="failed" if faults else status_of(code), seconds=taken,
                text="; ".join(faults) if faults else "" if code == 0 else output[-500:])


def bench_all(results, section, build, seconds, calls):
    """Calls of bench_of: each has its share of the time that those before it left."""
    end = time.monotonic() + seconds
    for number, (preset, what, arguments) in enumerate(calls):
        share = (end - time.monotonic()) / (len(calls) - number)
        bench_of(results, section, build, share, preset, what, arguments)


def bench(results, build, seconds):
    """Kernels in the order of a step; % of what the same run probes."""
    kinds = (("decode", "-p 0 -n 128 -d 1024 -b 1,8,64,256"), ("prefill", "-p 512,8192,32768 -n 0"))
    bench_all(results, "bench", build, seconds,
              [(preset, what, line.split()) for preset in PRESETS for what, line in kinds])


def requests(results, build, seconds):
    """vLLM's workload for hybrids at full length, in every mode of --graphs, then more at once. So
    few prompts that each call comes to its end: 2 million tokens to prefill."""
    kinds = (("graphs", "--max-concurrency 1,8 --num-prompts 8 "
                        "--graphs eager,piecewise,full,full+piecewise"),
             ("load", "--max-concurrency 16,32 --num-prompts 32"))
    bench_all(results, "requests", build, seconds,
              [(preset, what, ["--preset", "vllm-hybrid", "-r", "1", *line.split()])
               for preset in ("granite-4.0-h-tiny", "nemotron-nano-12b-v2")
               for what, line in kinds])


def lanes(results, build, seconds):
    """Prompts in chunks among answers, and in a stream of their own."""
    bench_all(results, "lanes", build, seconds,
              [(preset, "pd-mix", ["--preset", "pd-mix", "-r", "1", "--request-rate", "2",
                                   "--num-prompts", "24"])
               for preset in ("granite-4.0-h-tiny", "qwen3.5-4b")])


def peers(results, build, seconds):
    """What else is on the machine, on the same shapes."""
    probe(results, "peers", [sys.executable, TOP / "scripts" / "gpu_peers.py"], seconds)


# In this order: what is wrong first, then what decides designs, then how fast it is.
SECTIONS = {"conformance": (conformance, 40), "laws": (laws, 80), "memory": (memory, 40),
            "nodes": (nodes, 10), "sanitizer": (sanitizer, 100), "models": (models, 60),
            "bench": (bench, 150), "peers": (peers, 60), "requests": (requests, 530),
            "lanes": (lanes, 240)}
BY_NAME_ONLY = ("requests", "lanes")  # take all the time there is


def machine(results, build):
    _, version, _ = run([build / "hyb", "--version"], 20)
    _, doctor, _ = run([build / "hyb", "doctor", "--json"], 60)
    query = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,temperature.gpu,power.limit"
    smi = shutil.which("nvidia-smi")
    card = run([smi, f"--query-gpu={query}", "--format=csv,noheader"], 20)[1].strip() if smi else ""
    results.add("machine", version=version.strip(), card=card, doctor=doctor[:4000])


def build_programs(build):
    """Builds what changed, where nvcc is. Programs that were built elsewhere stay as they are."""
    programs = ("hyb", "hyb_tests_cuda", "card_memory", "card_nodes")
    has_nvcc = shutil.which("nvcc") or pathlib.Path("/usr/local/cuda/bin/nvcc").exists()
    can_build = has_nvcc and (build / "build.ninja").exists()
    if not can_build and all((build / program).exists() for program in programs):
        return
    subprocess.run([TOP / "scripts" / "build.sh", build, *programs, "--", "-DHYB_CUDA=ON"],
                   check=True)


def card_name():
    smi = shutil.which("nvidia-smi")
    name = run([smi, "--query-gpu=name", "--format=csv,noheader"], 20)[1] if smi else "no card"
    return re.sub(r"[^a-z0-9]+", "-", name.splitlines()[0].lower()).strip("-")


def default_file(card, sections):
    """A run of some sections does not take the place of a full one."""
    return TOP / "tests" / "gpu" / f"results-{'-'.join([card, *sections])}.jsonl"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build",
                        help="where the programs are, or are to be; %(default)s")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="else tests/gpu/results-<card>[-SECTION...].jsonl")
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], default=[],
                        metavar="SECTION", help=f"of {', '.join(SECTIONS)}; else all but "
                                                f"{', '.join(BY_NAME_ONLY)}")
    arguments = parser.parse_args()
    build_programs(arguments.build)
    results = Results(arguments.out or default_file(card_name(), arguments.sections))
    end = time.monotonic() + TOTAL_SECONDS
    machine(results, arguments.build)
    for name in arguments.sections or [name for name in SECTIONS if name not in BY_NAME_ONLY]:
        section, seconds = SECTIONS[name]
        section(results, arguments.build, max(1, min(seconds, end - time.monotonic())))
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
