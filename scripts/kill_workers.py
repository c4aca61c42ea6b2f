#!/usr/bin/env python3
"""Kill the workers and the engines of batches at random, and see that nothing is lost.

    scripts/kill_workers.py build/hyb MODEL [--workers 200] [--engines 50] [--option=--spec ...]

Answers a file of requests with `hyb batch` in one lane, undisturbed; then with --disaggregate,
again and again, until the wanted numbers of workers and engines were ended by SIGKILL at random
moments, amid a step or not. An engine that was killed is started again with the same command, which
goes on. In the end of every batch each request has one result: the undisturbed one. Within a second
of the end of an engine, however it came, all processes that it had are gone. Prints the figures;
exit 1 at the first rule that does not hold.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from measure_limits import requests

GRACE = 1.0  # seconds in which processes end after their engine


def processes():
    """pid: (parent, name, state) of all of them."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        name, rest = text[text.index("(") + 1:].rsplit(")", 1)
        state, parent = rest.split()[:2]
        found[int(folder.name)] = (int(parent), name, state)
    return found


def family(engine):
    """pid: name of the launcher and worker of an engine, as far as they live."""
    everyone, found = processes(), {}
    for pid, (parent, name, state) in everyone.items():
        is_own = parent == engine or (parent in everyone and everyone[parent][0] == engine)
        if is_own and state != "Z":
            found[pid] = name
    return found


class Answers:
    """Result lines by id, less what depends on time and on what else ran."""

    def __init__(self, path):
        self.of = collections.defaultdict(list)
        for line in path.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            body = (result.get("response") or {}).get("body", {})
            kept = [body.get("choices"), result.get("error")]
            self.of[result["custom_id"]].append(json.dumps(kept, sort_keys=True))


class Trial:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.draw = random.Random(args.seed)
        self.source = folder / "in.jsonl"
        lines = requests(args.lines, args.seed, args.tokens)
        self.source.write_text("".join(json.dumps(line) + "\n" for line in lines),
                               encoding="utf-8")
        self.workers, self.engines, self.batches = 0, 0, 0
        self.gone = []  # seconds until all processes of an engine had ended

    def command(self, target, *more):
        return [self.args.hyb, "batch", self.args.model, str(self.source), "-o", str(target),
                "--parallel", str(self.args.parallel), *self.args.option, *more]

    def fail(self, what):
        raise SystemExit(f"batch {self.batches + 1}, after {self.workers} workers and "
                         f"{self.engines} engines: {what}")

    def start(self, target):
        return subprocess.Popen(self.command(target, "--disaggregate"), stderr=subprocess.PIPE,
                                encoding="utf-8")

    def run_batch(self, expected):
        target = self.folder / f"out-{self.batches}.jsonl"
        while True:
            process = self.start(target)
            known = self.disturb(process)
            self.await_end_of(known)
            said = process.stderr.read()
            if process.returncode == 0:
                break
            if process.returncode != -signal.SIGKILL:
                self.fail(f"exit {process.returncode}\n{said}")
        answers = Answers(target).of
        for name, texts in expected.items():
            if len(answers[name]) != 1:
                self.fail(f"{len(answers[name])} results for {name}")
            if answers[name] != texts:
                self.fail(f"{name}: {answers[name][0]} instead of {texts[0]}")
        if len(answers) != len(expected):
            self.fail("results that no one asked for")
        self.batches += 1

    def disturb(self, process):
        """Kills until the engine has ended; the pids of all processes that it had."""
        known = set()
        kills_engine = self.engines < self.args.engines and self.draw.random() < 0.8
        end = time.monotonic() + self.draw.uniform(0.1, self.args.life)
        while process.poll() is None:
            pause = time.monotonic() + self.draw.uniform(0.02, self.args.pause)
            while process.poll() is None and time.monotonic() < pause:
                known.update(family(process.pid))
                time.sleep(0.01)
            if kills_engine and time.monotonic() > end:
                known.update(family(process.pid))
                process.kill()
                process.wait()
                self.engines += 1
                break
            worker = [pid for pid, name in family(process.pid).items() if name == "hyb-worker"]
            if worker and self.workers < self.args.workers:
                try:
                    os.kill(worker[0], signal.SIGKILL)
                    self.workers += 1
                except ProcessLookupError:
                    pass
        return known

    def await_end_of(self, known):
        begin = time.monotonic()
        while True:
            now = processes()
            left = {pid: now[pid] for pid in known
                    if pid in now and now[pid][1].startswith("hyb") and now[pid][2] != "Z"}
            if not left:
                break
            if time.monotonic() - begin > GRACE:
                self.fail(f"still there after {GRACE} s: {left}")
            time.sleep(0.002)
        self.gone.append(time.monotonic() - begin)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hyb", help="the binary")
    parser.add_argument("model", help="a model folder, or demo")
    parser.add_argument("--workers", type=int, default=200, help="to be killed in all")
    parser.add_argument("--engines", type=int, default=50, help="the same")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=600, help="about, in the longest prompt")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.6, help="seconds between kills, at most")
    parser.add_argument("--life", type=float, default=5, help="seconds of an engine, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[],
                        help="one more for hyb batch: --option=--spec --option=ngram")
    return parser.parse_args()


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(args, pathlib.Path(name))
        target = trial.folder / "undisturbed.jsonl"
        subprocess.run(trial.command(target), check=True, stderr=subprocess.PIPE)
        expected = Answers(target).of
        if len(expected) != args.lines or any(len(texts) != 1 for texts in expected.values()):
            trial.fail("the undisturbed batch has not one result for each request")
        begin = time.monotonic()
        while trial.workers < args.workers or trial.engines < args.engines:
            trial.run_batch(expected)
            print(f"{trial.batches} batches, {trial.workers} workers and {trial.engines} engines "
                  f"killed, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        print(f"{trial.batches} batches of {args.lines} lines, {trial.workers} workers and "
              f"{trial.engines} engines killed: every id once, the bytes of the undisturbed batch; "
              f"processes gone {1000 * max(trial.gone):.0f} ms after their engine at most, "
              f"{len(trial.gone)} ends")


if __name__ == "__main__":
    sys.exit(main())
