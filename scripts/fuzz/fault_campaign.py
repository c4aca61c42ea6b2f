#!/usr/bin/env python3
"""Let single calls of the C library fail, and memory end, all over hyb's commands.

    scripts/fuzz/fault_campaign.py build/hyb [--only batch] [--fail write] [--calls 300]

Runs `run`, `batch` with a tier, with --disaggregate and with --retry-failed, and `chat` with a
session that was saved before on the demo model, once undisturbed, which counts the calls of each
kind (tests/tools/fail_calls.c, preloaded), then once for each of --calls of them, evenly spread,
which fails (FAULTS: with which errno, and how many in a row); then under `ulimit -v`, from
--limit-step MB on to --limit-max MB. Each run must end within a minute with the undisturbed
answers, or with one line of an error and exit 4 where memory was short, else 1, 3 or 4, and leave
no file that an undisturbed run does not. A batch's output is whole then: the same command,
undisturbed, goes on and gives the rest. A chat's session is that of an undisturbed chat with all
turns, or without those of which something was said, and the chat goes on with them. Prints a
table; exit 1 when one did not.

All of it takes 12 minutes of processor time; --short, which ctest runs, 30 seconds.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

MEGABYTE = 1 << 20
PATIENCE = 300  # seconds of a run, at most
SHIM = pathlib.Path(__file__).resolve().parents[2] / "tests/tools/fail_calls.c"
QUESTION = "The red box holds a coin. The blue bag holds a key. What is in the"
LINES = [{"custom_id": str(number), "max_tokens": 12, "n": 2 if number == 5 else 1,
          "messages": [{"role": "user", "content": f"{QUESTION} {thing}?{' Really?' * number}"}]}
         for number, thing in enumerate(["red box", "blue bag"] * 6)]
TURNS = [f"{QUESTION} red box?\n", "What is 12 plus 30?\n", f"{QUESTION} blue bag?\n"]
# (calls, errno or "short", how many in a row; 0: all from there on)
FAULTS = [("malloc", "", 1), ("write", "5", 1), ("write", "28", 1), ("write", "28", 0),
          ("write", "short", 1), ("fsync", "5", 1), ("fsync", "5", 0), ("rename", "5", 1),
          ("truncate", "28", 1), ("mkdir", "28", 1), ("mmap", "12", 1), ("mmap", "12", 0),
          ("pread", "5", 1), ("pread", "5", 0), ("pread", "short", 1), ("read", "5", 1),
          ("read", "short", 1), ("open", "24", 1), ("open", "24", 0), ("stat", "5", 1)]


class Outcome:
    def __init__(self, folder, finished, output):
        self.folder, self.output = folder, output
        self.code, self.said = finished.returncode, finished.stderr

    def errors(self):
        return [line for line in self.said.splitlines() if "hyb: error" in line]


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Command:
    """One of hyb's commands, in a folder of its own for each run."""

    def __init__(self, hyb, name, words, kind="text"):
        self.hyb, self.name, self.words, self.kind = hyb, name, words, kind
        self.turns = TURNS if kind == "session" else []
        self.states = {}  # of a session: what `hyb sessions show` says after some of the turns

    def prepare(self, folder):
        """What is there before a run; `--retry-failed` finds a line that failed."""
        folder.mkdir()
        if self.kind == "results":
            (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES),
                                             encoding="utf-8")
        if self.kind == "session":
            self.run(folder, turns=["What is 2 plus 2?\n"])
        if "--retry-failed" in self.words:
            self.run(folder)
            target = folder / "out.jsonl"
            lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
            failed = {**json.loads(lines[2]), "response": None,
                      "error": {"code": "failed", "message": "planted"}}
            target.write_text("".join([*lines[:2], json.dumps(failed) + "\n", *lines[3:]]),
                              encoding="utf-8")

    def call(self, folder, words, text="", environment=None, limit=None):
        def before():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
                "XDG_CACHE_HOME": str(folder / "cache"), "PATH": os.environ["PATH"]}
        try:
            return subprocess.run(
                [self.hyb, *words], cwd=folder, input=text, capture_output=True,
                encoding="utf-8", errors="replace", timeout=PATIENCE, preexec_fn=before,
                env={**home, **(environment or {})})
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess([], "hangs", "", str(late.stderr or ""))

    def run(self, folder, environment=None, limit=None, turns=None):
        text = "".join(self.turns if turns is None else turns)
        finished = self.call(folder, self.words, text, environment, limit)
        return Outcome(folder, finished, self.answers(folder, finished.stdout))

    def session(self, folder):
        """The turns that were answered: a question is saved before its answer."""
        shown = self.call(folder, ["sessions", "show", "saved"])
        if shown.returncode != 0:
            return shown.stderr
        rest, _, last = shown.stdout.rpartition("user: ")
        return rest.rstrip() + "\n" if "\nassistant (stopped):" in last else shown.stdout

    def learn_states(self, folder):
        folder.mkdir()
        for which in range(1 << len(self.turns)):
            some = [turn for place, turn in enumerate(self.turns) if which >> place & 1]
            self.prepare(folder / str(which))
            if some:
                self.run(folder / str(which), turns=some)
            self.states[self.session(folder / str(which))] = some

    def answers(self, folder, printed):
        """What must not differ; None: a line of the output is not a result."""
        if self.kind != "results":
            return printed
        target = folder / "out.jsonl"
        if not target.exists():
            return {}
        found = {}
        for line in target.read_text(encoding="utf-8").splitlines(keepends=True):
            try:
                result = json.loads(line)
                if result["error"] is not None and "--retry-failed" in self.words:
                    continue
                choices = result["response"]["body"]["choices"]
            except (ValueError, TypeError, KeyError):
                return None
            if not line.endswith("\n") or result["custom_id"] in found:
                return None
            found[result["custom_id"]] = json.dumps(choices, sort_keys=True)
        return found


def commands(hyb):
    batch = ["batch", "demo", "in.jsonl", "-o", "out.jsonl", "--parallel", "4", "--threads", "2"]
    return [
        Command(hyb, "run", ["run", "--no-stdin", "-n", "12", "-p", f"{QUESTION} red box?"]),
        Command(hyb, "batch", [*batch, "--pool-memory", "1MB", "--disk-tier", "64MB",
                               "--disk-tier-folder", "."], "results"),
        Command(hyb, "chat", ["chat", "-n", "12", "--session", "saved"], "session"),
        Command(hyb, "lanes", [*batch, "--disaggregate"], "results"),
        Command(hyb, "retry", [*batch, "--retry-failed"], "results"),
    ]


class Campaign:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.shim = folder / "fail_calls.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.shim, SHIM], check=True)
        self.counts = collections.Counter()
        self.faults = []
        self.files = {}  # by command: what an undisturbed run leaves

    def environment(self, report, fault, at=0):
        calls, error, count = fault
        return {"LD_PRELOAD": str(self.shim), "FAIL_CALLS": calls, "FAIL_AT": str(at),
                "FAIL_COUNT": str(count), "FAIL_ERRNO": error, "FAIL_REPORT": str(report)}

    def judge(self, command, expected, outcome, calls, error):
        """A word for the table; a fault's begins with a capital."""
        if outcome.output is None:
            return "A line of the output is not a result"
        if outcome.code == "hangs" or outcome.code < 0:
            return "Hangs" if outcome.code == "hangs" else signal.Signals(-outcome.code).name
        is_memory = calls in ("malloc", "mmap", "ulimit")
        cause = "memory" if is_memory else os.strerror(int(error)) if error.isdigit() else ""
        left = files_of(outcome.folder) - self.files[command.name]
        if left and calls != "stat":  # a file that can't be looked at is not removed
            return f"Leaves {', '.join(sorted(left))}"
        if outcome.code == 0 and outcome.output != expected:
            return "Exit 0 and another answer"
        if outcome.code not in ([0, 4] if is_memory else [0, 1, 3, 4]):
            return f"Exit {outcome.code}"
        if outcome.code != 0 and len(set(outcome.errors())) != 1:
            return f"{len(outcome.errors())} Lines of errors"
        # Of what the system says about itself the error says what it lacked.
        said = outcome.errors()[0].lower() if outcome.code != 0 else ""
        if outcome.code != 0 and cause.lower() not in said and "/proc/" not in said:
            return "Another cause"
        found = {"text": self.judge_text, "results": self.judge_results,
                 "session": self.judge_session}[command.kind](command, expected, outcome)
        return found or ("right" if outcome.code == 0 else f"exit {outcome.code}")

    def judge_text(self, _command, expected, outcome):
        # An answer that an error cuts short gets a line break, so that the shell's prompt is alone.
        told = outcome.output if outcome.code == 0 else outcome.output.removesuffix("\n")
        return "" if expected.startswith(told) else "Another answer"

    def judge_results(self, command, expected, outcome):
        if any(expected[name] != text for name, text in outcome.output.items()):
            return "Another answer in the output"
        again = command.run(outcome.folder) if outcome.code != 0 else outcome
        return "" if again.code == 0 and again.output == expected else "Does not go on"

    def judge_session(self, command, _expected, outcome):
        saved = command.session(outcome.folder)
        if saved not in command.states:
            return "Another session"
        left = [turn for turn in command.turns if turn not in command.states[saved]]
        if left and outcome.code == 0 and "this chat is not saved" not in outcome.said:
            return "Not saved, and nothing is said"
        again = command.run(outcome.folder, turns=left)
        is_longer = command.session(outcome.folder).startswith(saved.rstrip())
        return "" if again.code == 0 and is_longer else "Does not go on"

    def trial(self, command, expected, name, fault, **how):
        folder = self.folder / f"{command.name} {name}"
        shutil.copytree(self.folder / command.name, folder)
        outcome = command.run(folder, **how)
        verdict = self.judge(command, expected, outcome, *fault)
        shutil.rmtree(folder)
        return verdict, f"{command.name} {name}: {verdict}\n{outcome.said[-600:]}"

    def undisturbed(self, command, fault):
        """(answers, the calls that can fail)."""
        folder, report = self.folder / f"{command.name}-undisturbed", self.folder / "calls"
        report.unlink(missing_ok=True)
        shutil.copytree(self.folder / command.name, folder)
        outcome = command.run(folder, self.environment(report, fault))
        if outcome.code != 0 or not outcome.output:
            sys.exit(f"{command.name}, undisturbed: exit {outcome.code}\n{outcome.said}")
        self.files[command.name] = files_of(folder)
        shutil.rmtree(folder)
        return outcome.output, struct.unpack("q", report.read_bytes())[0]

    def run(self, command):
        command.prepare(self.folder / command.name)
        if command.kind == "session":
            command.learn_states(self.folder / f"{command.name} states")
        trials = []
        for fault in self.args.faults:
            calls, error, count = fault
            expected, total = self.undisturbed(command, fault)
            tried = min(self.args.calls[calls == "malloc"], total)
            label = " ".join([calls, error, *([] if count else ["on"])]).strip()
            for step in range(tried):
                at = 1 + (step * total + total // 2) // tried
                report = self.folder / f"calls {command.name} {label} {at}"
                trials.append((label, f"{label} at {at} of {total}",
                               {"environment": self.environment(report, fault, at),
                                "fault": (calls, error)}))
        if self.args.limit_step:
            for limit in range(self.args.limit_step, self.args.limit_max + 1,
                               self.args.limit_step):
                if self.starts_within(command.hyb, limit * MEGABYTE):
                    trials.append(("ulimit", f"ulimit {limit} MB",
                                   {"limit": limit * MEGABYTE, "fault": ("ulimit", "")}))
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            waiting = {pool.submit(self.trial, command, expected, name, **how): label
                       for label, name, how in trials}
            for done in concurrent.futures.as_completed(waiting):
                verdict, text = done.result()
                self.counts[command.name, waiting[done], verdict] += 1
                if not verdict[0].islower():
                    self.faults.append(text)

    @staticmethod
    def starts_within(hyb, limit):
        """Whether the system can map the program at all: what ends before is not hyb's."""
        probe = subprocess.run(
            [hyb, "--version"], capture_output=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        return probe.returncode in (0, 4)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hyb", help="the binary, without sanitizers")
    parser.add_argument("--only", action="append", choices=[one.name for one in commands("")])
    parser.add_argument("--fail", action="append", choices=sorted({row[0] for row in FAULTS}),
                        help="calls that fail; all if nothing is said")
    parser.add_argument("--calls", type=int, default=300, help="that fail, of each kind")
    parser.add_argument("--limit-step", type=int, default=8, help="MB of ulimit -v; 0: none")
    parser.add_argument("--limit-max", type=int, default=800, help="MB")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--short", action="store_true",
                        help="2 calls of each kind, 10 of malloc, steps of 100 MB")
    args = parser.parse_args()
    args.hyb = str(pathlib.Path(args.hyb).resolve())
    args.faults = [row for row in FAULTS if not args.fail or row[0] in args.fail]
    args.calls = (args.calls, args.calls)
    if args.short:
        args.calls, args.limit_step = (2, 10), 100
    return args


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        campaign = Campaign(args, pathlib.Path(name))
        for command in commands(args.hyb):
            if not args.only or command.name in args.only:
                campaign.run(command)
    for text in campaign.faults:
        print(text)
    for (command, kind, verdict), count in sorted(campaign.counts.items()):
        print(f"{command:6} {kind:12} {count:5}  {verdict}")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
