#!/usr/bin/env python3
"""Checks and measures hyb on a machine with an NVIDIA card, in two short calls, without network.

    scripts/card/day.py pack      # here: builds for sm_90, packs .card/, prints the two calls
    scripts/card/day.py A         # there, with OUT set: is it right, what designs wait for
    scripts/card/day.py B         # there: how fast, beside the model, peers and profilers
    scripts/card/day.py list A|B  # the stages: seconds and command, one JSON object a line

Stages run in order of value. Each has a limit, after which everything that it started is killed;
the part has one, too. Every line of output goes to $OUT/log-PART.txt and every line of JSON to
$OUT/rows-PART.jsonl as it comes, so that what was measured before a cut stays. Rows name their
stage and card; the last row of a job says how it ended. Exit code 1: something failed or was cut.
"""

import argparse
import csv
import ctypes
import dataclasses
import json
import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
PACKED = TOP / ".card/programs.tar.xz"
PROGRAMS = ("hyb", "hyb_tests_cuda", "card_memory", "card_nodes", "card_gates", "card_hop")
ARCHIVE_BYTES, TRAVEL_BYTES = 20 * 1000**2, 60 << 20
# Programs are packed, so these would travel for nothing.
ABSENT = ("app", "core", "tests/app", "tests/core", "tests/fuzz", "tests/kernels", "tests/models",
          "tests/sim")
START_SECONDS = 90                            # of a machine: they count, too
PART_SECONDS = {"A": 5 * 60 - START_SECONDS, "B": 8 * 60 - START_SECONDS}
END_SECONDS = 5                               # kept for the end of a part's call
METRICS = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")  # of ncu
LOG_BYTES, TEXT_LINES = 12 << 20, 60          # more of a log would not come back
GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    seconds: float       # then everything it started is killed
    jobs: dict           # name: command
    at_once: int = 1
    memory_gib: int = 0  # of a card, that it needs
    spare: bool = False  # runs in time that those before it left; the others' limits fit the part


# ---- the plan ------------------------------------------------------------------------------------


def one(name, seconds, *command, **more):
    return Stage(name, seconds, {name: list(command)}, **more)


def bench_line(preset, line):
    """Weights as published, so that a row is what the model predicts."""
    return ["hyb", "bench", f"models/presets/{preset}", *"--device cuda --random-weights 1 "
            f"--lossless off -o jsonl {line}".split()]


def bench(name, seconds, preset, line, variables=(), **more):
    return one(name, seconds, *(["env", *variables] if variables else []),
               *bench_line(preset, f"-r 2 {line}"), **more)


def profile(name, seconds, skip, count, line):
    """Time and memory of single kernels; without graphs, whose nodes the profiler does not see."""
    return one(name, seconds, *"ncu --clock-control none --csv --page raw --print-units base "
               f"--kill yes --launch-skip {skip} --launch-count {count} --metrics".split(),
               ",".join(METRICS), *bench_line("granite-4.0-h-tiny", f"--graphs eager -r 1 {line}"))


def demo(seconds):
    """The same words from both devices."""
    said = "hyb run demo -p 'What is the capital of France?' -n 24 --device"
    return one("demo", seconds, "bash", "-c", f"diff <({said} cpu) <({said} cuda)")


def suites(name, seconds, listed, **more_jobs):
    """A process each: an illegal access ends one of them."""
    jobs = {suite: ["stdbuf", "-oL", "hyb_tests_cuda", f"-ts={suite}"] for suite in listed}
    return Stage(name, seconds, jobs | more_jobs, at_once=8)


def sanitizer(seconds):
    wanted = ("cuda/conformance,cuda/rms_norm,cuda/mamba_step,cuda/delta_step,cuda/s6,"
              "cuda/latent_attention,cuda/moe_route")
    return Stage("sanitizer", seconds, {
        tool: ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9", "--print-limit=20",
               "hyb_tests_cuda", f"-ts={wanted}"]
        for tool in ("memcheck", "racecheck", "synccheck", "initcheck")}, at_once=4, spare=True)


def part_a(listed):
    tiny, prompts = "granite-4.0-h-tiny", "-p 8192 -n 64 -d 0 -b 1"
    return [
        Stage("machine", 8, {
            "nvidia-smi": ["nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,"
                           "memory.total,memory.free,clocks.sm,clocks.max.sm,power.limit"],
            "kernel": ["uname", "-r"], "doctor": ["hyb", "doctor", "--json"]}),
        demo(12),
        suites("conformance", 12, ["cuda/conformance"]),
        suites("suites", 60, [suite for suite in listed if suite != "cuda/conformance"]),
        one("nodes", 8, "card_nodes"),
        one("gates", 25, "card_gates"),
        one("memory", 12, "card_memory"),
        bench("first-350m", 10, "granite-4.0-h-350m", prompts),
        bench("first-tiny", 15, tiny, prompts),
        one("hop", 43, "card_hop"),
    ]


def part_b(listed):
    tiny, nano = "granite-4.0-h-tiny", "nemotron-3-nano-30b-a3b"
    decode, both = "-p 0 -n 64 -d 1024 -b 1,8,64", "-p 8192 -n 64 -d 1024 -b 1,64"
    few = "-p 0 -n 64 -d 1024 -b 1,64"
    return [
        # The peers' libraries are read from the disk meanwhile.
        suites("suites", 50, listed, torch=["python3", "-c", "import torch, transformers"]),
        bench("tiny-decode", 35, tiny, f"{decode},256"),
        bench("tiny-prefill", 15, tiny, "-p 512,8192,32768 -n 0"),
        bench("elastic", 40, tiny, "--preset elastic-shift"),
        bench("nano-decode", 40, nano, decode),
        bench("nano-prefill", 30, nano, "-p 8192,32768 -n 0"),
        one("peers", 45, "python3", "scripts/card/peers.py"),
        bench("delta-decode", 20, "qwen3.5-4b", decode),
        bench("delta-prefill", 15, "qwen3.5-4b", "-p 8192,32768 -n 0"),
        bench("tiny-carveout", 12, tiny, few, ["HYB_CUDA_CARVEOUT=100"]),
        bench("tiny-late-starts", 12, tiny, few, ["HYB_CUDA_EARLY_STARTS=off"]),
        profile("ncu-decode", 35, 3000, 260, "-p 0 -n 32 -d 0 -b 1"),
        profile("ncu-prefill", 35, 1200, 720, "-p 8192 -n 0"),
        bench("next-fp8", 60, "qwen3-next-80b-a3b", f"--quantize fp8 {both}", memory_gib=100,
              spare=True),
        bench("tiny-fp8", 25, tiny, f"--quantize fp8 {both}", spare=True),
        bench("tiny-q8", 25, tiny, f"--quantize q8 {both}", spare=True),
        bench("tiny-graphs", 20, tiny, "-p 0 -n 64 -d 0 -b 1,64 --graphs eager,full", spare=True),
        sanitizer(50),
        bench("qwen-35b", 60, "qwen3.5-35b-a3b", both, memory_gib=100, spare=True),
        bench("requests", 60, tiny, "--preset sglang-send-one", spare=True),
        one("hop", 45, "card_hop", spare=True),
    ]


PARTS = {"A": part_a, "B": part_b}


# ---- running it ----------------------------------------------------------------------------------


class Results:
    """The two files, and what the call prints: a line for each job."""

    def __init__(self, folder, part, card):
        folder.mkdir(parents=True, exist_ok=True)
        self.log = open(folder / f"log-{part}.txt", "a", encoding="utf-8", buffering=1)
        self.rows = open(folder / f"rows-{part}.jsonl", "a", encoding="utf-8", buffering=1)
        self.card, self.failed = card, False

    def line(self, job, text):
        if self.log.tell() < LOG_BYTES:
            self.log.write(f"[{job}] {text}\n")

    def row(self, stage, facts):
        self.rows.write(json.dumps({"stage": stage, "card": self.card, **facts}) + "\n")

    def end(self, stage, job, status, seconds=0.0, **facts):
        self.row(stage, {"job": job, "ended": status, "s": round(seconds, 1), **facts})
        print(f"{stage} {job}: {status}, {seconds:.1f} s", facts.get("text", ""), flush=True)
        self.failed = self.failed or status != "ok"


class Job:
    """A program under way. Its output is a file, which no process that it leaves keeps waiting."""

    def __init__(self, stage, name, command, results):
        self.stage, self.name, self.results = stage, name, results
        self.begin, self.text, self.faults = time.monotonic(), [], []
        self.output, self.seen, self.rest = tempfile.TemporaryFile(), 0, b""
        results.line(name, "$ " + " ".join(command))
        try:
            self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)
        except OSError as error:
            self.process = None
            self.text.append(str(error))

    def read(self):
        """Passes on the lines that are complete."""
        more = os.pread(self.output.fileno(), 1 << 20, self.seen)
        self.seen += len(more)
        *lines, self.rest = (self.rest + more).split(b"\n")
        for line in lines:
            self.take(line.decode(errors="replace"))
        return bool(more)

    def take(self, line):
        self.results.line(self.name, line)
        row = parsed(line)
        if row is not None:
            self.results.row(self.stage, row)
            if row.get("status", "ok") != "ok":
                self.faults.append(str(row["status"]))
        elif line.strip():
            self.text.append(line)

    def end(self, was_cut):
        while self.read():
            pass
        if self.rest:
            self.take(self.rest.decode(errors="replace"))
        code = self.process.returncode if self.process else 127
        whole = parsed("\n".join(self.text))  # JSON over several lines
        if whole is not None:
            self.results.row(self.stage, {"job": self.name, "said": whole})
        for row in kernel_rows(self.text):
            self.results.row(self.stage, row)
        status = "cut" if was_cut else "failed" if code != 0 or self.faults else "ok"
        lines = self.faults + self.text
        if len(lines) > TEXT_LINES:
            lines[TEXT_LINES // 2:-TEXT_LINES // 2] = ["..."]
        facts = {} if status == "ok" else {"rc": code, "text": "\n".join(lines)}
        self.results.end(self.stage, self.name, status, time.monotonic() - self.begin, **facts)


def kernel_rows(lines):
    """Sums over the launches of each kernel, the slowest first, of the table that ncu prints."""
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    sums = {}
    for row in csv.DictReader(lines[begin:]):
        if not row["ID"].isdigit():
            continue  # the units, which are ns and bytes, or what ncu says
        group = sums.setdefault(row["Kernel Name"], [0, 0.0, 0.0])
        numbers = [float((row.get(name) or "0").replace(",", "")) for name in METRICS]
        group[0] += 1
        group[1] += numbers[0]
        group[2] += numbers[1] + numbers[2]
    for kernel, (launches, time_ns, moved) in sorted(sums.items(), key=lambda one: -one[1][1]):
        yield {"kernel": kernel, "launches": launches, "us": round(time_ns / 1e3, 1),
               "bytes": int(moved)}


def parsed(text):
    try:
        row = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def descendants():
    """Processes that come from this one, whatever group or session they are in now."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, more = [], [os.getpid()]
    while more:
        more = [child for parent in more for child in children.get(parent, [])]
        found += more
    return found


def kill_all():
    """One that the driver holds on to may not die: it is not waited for long."""
    end = time.monotonic() + 2
    while (left := descendants()) and time.monotonic() < end:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def reap():
    """Ends what is left of processes that had lost their parent."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def run_stage(stage, seconds, results):
    end = time.monotonic() + seconds
    waiting, running = list(stage.jobs.items()), []
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < stage.at_once:
            running.append(Job(stage.name, *waiting.pop(0), results))
        for job in list(running):
            job.read()
            if job.process is None or job.process.poll() is not None:
                running.remove(job)
                job.end(was_cut=False)
        time.sleep(0.02)
    kill_all()
    for job in running:
        job.process.poll()
        job.end(was_cut=True)
    reap()
    for name, _ in waiting:
        results.end(stage.name, name, "not run")


def output_of(*command):
    """Empty where there is no such program, or it does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def card():
    """(name, GiB)"""
    name, _, mebibytes = output_of(
        "nvidia-smi", "--query-gpu=name,memory.total",
        "--format=csv,noheader,nounits").split("\n")[0].rpartition(", ")
    return name or "no card", int(mebibytes) >> 10 if mebibytes.isdigit() else 0


def test_suites():
    """Where they cannot be listed one process runs them all, and says why."""
    lines = output_of("hyb_tests_cuda", "--list-test-suites").splitlines()
    return [line for line in lines if line.startswith("cuda/")] or ["cuda/*"]


def unpack(folder):
    """The programs of the archive; without one they are on PATH already."""
    if PACKED.exists():
        with tarfile.open(PACKED) as archive:
            archive.extractall(folder)
    tools = ["/usr/local/cuda/bin", *pathlib.Path("/opt/nvidia").glob("nsight-compute/*")]
    os.environ["PATH"] = ":".join(map(str, [folder, os.environ["PATH"], *tools]))
    os.environ.update(HYB_TESTS_DIR=str(TOP / "tests"), PYTHONUNBUFFERED="1", HF_HUB_OFFLINE="1")


def run_part(part, out, seconds):
    end = time.monotonic() + seconds - END_SECONDS
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what loses its parent becomes ours
    os.chdir(TOP)
    with tempfile.TemporaryDirectory() as folder:
        unpack(folder)
        name, gib = card()
        results = Results(out, part, name)
        results.row("start", {"part": part, "version": output_of("hyb", "--version")})
        for stage in PARTS[part](test_suites()):
            left = end - time.monotonic()
            if stage.memory_gib > gib or left < 2:
                results.end(stage.name, stage.name, "not run")
            else:
                run_stage(stage, min(stage.seconds, left), results)
    return 1 if results.failed else 0


# ---- packing it ----------------------------------------------------------------------------------


def make(build):
    subprocess.run([TOP / "scripts/build.sh", build, *PROGRAMS, "--", "-DHYB_CUDA=ON",
                    "-DHYB_WERROR=ON", "-DCMAKE_CUDA_ARCHITECTURES=90-real"], check=True)


def pack(build):
    shutil.rmtree(PACKED.parent, ignore_errors=True)
    PACKED.parent.mkdir()
    # They share most of their code: a dictionary that spans them makes a third of it.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 256 << 20}]
    with (tempfile.TemporaryDirectory() as folder,
          lzma.open(PACKED, "wb", filters=filters) as file,
          tarfile.open(fileobj=file, mode="w") as archive):
        for program in PROGRAMS:
            stripped = pathlib.Path(folder) / program
            subprocess.run(["strip", "-o", stripped, build / program], check=True)
            archive.add(stripped, program)


def check_sizes(archive_bytes, travel_bytes):
    """Texts of what is too large to be carried."""
    for name, size, most in (("the archive", archive_bytes, ARCHIVE_BYTES),
                             ("all that travels", travel_bytes, TRAVEL_BYTES)):
        if size > most:
            yield f"{name} has {size / 1e6:.1f} MB, at most {most / 1e6:.1f}"


def travels():
    """Bytes of the working tree without ABSENT, that is, files that git has or does not ignore,
    and what is packed."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=TOP,
                             check=True, capture_output=True, text=True).stdout
    folders = tuple(f"{folder}/" for folder in ABSENT)
    names = [name for name in listing.split("\0") if name and not name.startswith(folders)]
    paths = [TOP / name for name in names] + [PACKED]
    return sum(path.lstat().st_size for path in paths if path.is_file() or path.is_symlink())


def print_calls():
    archive, all_bytes = PACKED.stat().st_size, travels()
    print(f"{PACKED.relative_to(TOP)}: {archive / 1e6:.1f} MB; "
          f"with the tree {all_bytes / 1e6:.1f} MB")
    if faults := list(check_sizes(archive, all_bytes)):
        sys.exit("card_day: " + "; ".join(faults))
    print("before: git sparse-checkout set --no-cone '/*' " +
          " ".join(f"'!/{folder}/'" for folder in ABSENT) + "; after: git sparse-checkout disable")
    for part, seconds in PART_SECONDS.items():
        print(f"run, with OUT set, at most {seconds} s: scripts/card/day.py {part}")
    print(f"Carry {PACKED.parent.name}; a start is taken to need {START_SECONDS} s. "
          "Between the calls give the machine back\nand fix what failed.")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["pack", "list", *PARTS])
    parser.add_argument("part", choices=PARTS, nargs="?", help="of list")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build-card")
    options = parser.parse_args()
    if options.action == "pack":
        make(options.build)
        pack(options.build)
        print_calls()
        return 0
    if options.action == "list":
        for stage in PARTS[options.part or "A"](["cuda/..."]):
            for name, command in stage.jobs.items():
                print(json.dumps({"stage": stage.name, "job": name, "seconds": stage.seconds,
                                  "spare": stage.spare, "command": command}))
        return 0
    if "OUT" not in os.environ:
        parser.error("set OUT to the folder of the results")
    return run_part(options.action, pathlib.Path(os.environ["OUT"]), PART_SECONDS[options.action])


if __name__ == "__main__":
    sys.exit(main())
