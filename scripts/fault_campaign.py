#!/usr/bin/env python3
"""Let single calls of the C library fail, and memory end, all over hyb's commands.

    scripts/fault_campaign.py build/hyb [--only batch] [--fail malloc] [--calls 300]

Runs `run`, `batch` with a tier, `chat` with a saved session and a batch with --disaggregate on the
demo model, once undisturbed, which counts the calls that --fail names (tests/tools/fail_calls.c,
preloaded), then once for each of --calls of them, evenly spread, which fails; then under
`ulimit -v`, from --limit-step MB on to --limit-max MB. Each run must end within a minute with the
undisturbed answers, or with exit 4 and one line of an error (with --fail other than malloc: with
any exit code but a signal's), a batch's output then being whole: the same command, undisturbed,
goes on and gives the rest; a saved chat still loads. Prints a table; exit 1 when one did not.

All of it takes about 2 minutes of processor time; --short, which ctest runs, 5 seconds.
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
PATIENCE = 60  # seconds of a run, at most
SHIM = pathlib.Path(__file__).parent.parent / "tests/tools/fail_calls.c"
QUESTION = "The red box holds a coin. The blue bag holds a key. What is in the"
LINES = [{"custom_id": str(number), "max_tokens": 12, "n": 2 if number == 5 else 1,
          "messages": [{"role": "user", "content": f"{QUESTION} {thing}?{' Really?' * number}"}]}
         for number, thing in enumerate(["red box", "blue bag"] * 6)]
TURNS = f"{QUESTION} red box?\nWhat is 12 plus 30?\n{QUESTION} blue bag?\n"


class Outcome:
    def __init__(self, folder, finished, output):
        self.folder, self.output = folder, output
        self.code, self.said = finished.returncode, finished.stderr

    def errors(self):
        return [line for line in self.said.splitlines() if "error" in line]


class Command:
    """One of hyb's commands, in a folder of its own for each run."""

    def __init__(self, hyb, name, words, text="", has_results=False):
        self.hyb, self.name, self.words, self.text = hyb, name, words, text
        self.has_results = has_results

    def prepare(self, folder):
        folder.mkdir()
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES),
                                         encoding="utf-8")

    def run(self, folder, environment=None, limit=None):
        def before():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
                "XDG_CACHE_HOME": str(folder / "cache"), "PATH": os.environ["PATH"]}
        try:
            finished = subprocess.run(
                [self.hyb, *self.words], cwd=folder, input=self.text, capture_output=True,
                encoding="utf-8", errors="replace", timeout=PATIENCE, preexec_fn=before,
                env={**home, **(environment or {})})
        except subprocess.TimeoutExpired as late:
            finished = subprocess.CompletedProcess([], "hangs", "", str(late.stderr or ""))
        return Outcome(folder, finished, self.answers(folder, finished.stdout))

    def answers(self, folder, printed):
        """What must not differ; None: a line of the output is not a result."""
        if not self.has_results:
            return printed
        target = folder / "out.jsonl"
        if not target.exists():
            return {}
        found = {}
        for line in target.read_text(encoding="utf-8").splitlines(keepends=True):
            try:
                result = json.loads(line)
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
        Command(hyb, "batch", [*batch, "--pool-memory", "6MB", "--disk-tier", "64MB",
                               "--disk-tier-folder", "."], has_results=True),
        Command(hyb, "chat", ["chat", "-n", "12", "--session", "saved"], TURNS),
        Command(hyb, "lanes", [*batch, "--disaggregate"], has_results=True),
    ]


class Campaign:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.shim = folder / "fail_calls.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.shim, SHIM], check=True)
        self.counts = collections.Counter()
        self.faults = []

    def environment(self, report, at=0):
        return {"LD_PRELOAD": str(self.shim), "FAIL_CALLS": self.args.fail, "FAIL_AT": str(at),
                "FAIL_COUNT": str(self.args.count), "FAIL_ERRNO": self.args.errno,
                "FAIL_REPORT": str(report)}

    def judge(self, command, expected, outcome):
        """A word for the table; a fault's begins with a capital."""
        if outcome.output is None:
            return "A line of the output is not a result"
        if outcome.code == 0:
            return "right" if outcome.output == expected else "Exit 0 and another answer"
        if outcome.code == "hangs" or outcome.code < 0:
            return "Hangs" if outcome.code == "hangs" else signal.Signals(-outcome.code).name
        if self.args.fail == "malloc" and outcome.code != 4:
            return f"Exit {outcome.code}"
        if len(outcome.errors()) != 1:
            return f"{len(outcome.errors())} Lines of errors"
        if command.has_results:
            if any(expected[name] != text for name, text in outcome.output.items()):
                return "Another answer in the output"
            if not self.goes_on(command, expected, outcome.folder):
                return "Does not go on"
        elif command.name == "chat":
            if subprocess.run([command.hyb, "sessions", "list"], env={"HOME": str(outcome.folder)},
                              capture_output=True, check=False).returncode != 0:
                return "Saved chats cannot be listed"
        return f"exit {outcome.code}"

    def goes_on(self, command, expected, folder):
        again = command.run(folder)
        return again.code == 0 and again.output == expected

    def trial(self, command, expected, name, **how):
        folder = self.folder / f"{command.name}-{name}"
        command.prepare(folder)
        outcome = command.run(folder, **how)
        verdict = self.judge(command, expected, outcome)
        shutil.rmtree(folder)
        return verdict, f"{command.name} {name}: {verdict}\n{outcome.said[-600:]}"

    def undisturbed(self, command):
        """(answers, the calls that can fail)."""
        folder, report = self.folder / f"{command.name}-undisturbed", self.folder / "calls"
        report.unlink(missing_ok=True)
        command.prepare(folder)
        outcome = command.run(folder, self.environment(report))
        if outcome.code != 0 or not outcome.output:
            sys.exit(f"{command.name}, undisturbed: exit {outcome.code}\n{outcome.said}")
        return outcome.output, struct.unpack("q", report.read_bytes())[0]

    def run(self, command):
        expected, calls = self.undisturbed(command)
        trials = []
        for step in range(min(self.args.calls, calls)):
            at = 1 + step * calls // self.args.calls if calls > self.args.calls else 1 + step
            report = self.folder / f"calls-{command.name}-{at}"
            trials.append((f"{self.args.fail} {at} of {calls}",
                           {"environment": self.environment(report, at)}))
        if self.args.limit_step:
            for limit in range(self.args.limit_step, self.args.limit_max + 1,
                               self.args.limit_step):
                if self.starts_within(command.hyb, limit * MEGABYTE):
                    trials.append((f"ulimit {limit} MB", {"limit": limit * MEGABYTE}))
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            waiting = {pool.submit(self.trial, command, expected, name, **how): name
                       for name, how in trials}
            for done in concurrent.futures.as_completed(waiting):
                verdict, text = done.result()
                kind = waiting[done].split()[0]
                self.counts[command.name, kind, verdict] += 1
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
    parser.add_argument("--only", action="append", choices=["run", "batch", "chat", "lanes"])
    parser.add_argument("--fail", default="malloc", help="calls that fail; see fail_calls.c")
    parser.add_argument("--errno", default="", help="in digits, or short: of --fail")
    parser.add_argument("--count", type=int, default=1, help="calls that fail in a row; 0: all")
    parser.add_argument("--calls", type=int, default=300, help="of each command, that fail")
    parser.add_argument("--limit-step", type=int, default=8, help="MB of ulimit -v; 0: none")
    parser.add_argument("--limit-max", type=int, default=800, help="MB")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--short", action="store_true", help="10 calls, steps of 100 MB")
    args = parser.parse_args()
    args.hyb = str(pathlib.Path(args.hyb).resolve())
    if args.short:
        args.calls, args.limit_step = 10, 100
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
        print(f"{command:6} {kind:7} {count:5}  {verdict}")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
