#!/usr/bin/env python3
"""Kill the workers, launchers and engines of batches at random, and see that nothing is lost.

    scripts/fuzz/kill_workers.py build/hyb MODEL [--workers 200] [--launchers 50] [--engines 50]
                            [--option=--spec ...]

Answers a file of requests with `hyb batch` in one lane, undisturbed; then with --disaggregate,
again and again, until the wanted numbers of workers, launchers and engines were ended at random
moments, amid a step or not: by SIGKILL, every other launcher stopped (SIGSTOP) and its worker
killed or not. One launcher at a time: the next one when there are two again that run. An engine
that was killed is started again with the same command, which goes on. In the end of every batch
each request has one result: the undisturbed one. Within a second of the end of an engine, however
it came, all processes that it had are gone, and no batch is without a new result for longer than
half a minute. Prints the figures; exit 1 at the first rule that does not hold. 50 launchers alone
take about 5 minutes on two cores.
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

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from measure.limits import requests

GRACE = 1.0  # seconds in which processes end after their engine
PATIENCE = 30.0  # seconds without a result, at most


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
    """pid: (parent, name, state) of the launchers and the worker of an engine that live."""
    everyone, found = processes(), {}
    for pid, (parent, name, state) in everyone.items():
        is_own = parent == engine or (parent in everyone and everyone[parent][0] == engine)
        if is_own and state != "Z":
            found[pid] = parent, name, state
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
        self.launchers, self.stopped = 0, 0
        self.longest = 0.0  # seconds without a result
        self.gone = []  # seconds until all processes of an engine had ended

    def command(self, target, *more):
        return [self.args.hyb, "batch", self.args.model, str(self.source), "-o", str(target),
                "--parallel", str(self.args.parallel), *self.args.option, *more]

    def fail(self, what):
        raise SystemExit(f"batch {self.batches + 1}, after {self.workers} workers, "
                         f"{self.launchers} launchers and {self.engines} engines: {what}")

    def start(self, target):
        return subprocess.Popen(self.command(target, "--disaggregate"), stderr=subprocess.PIPE,
                                encoding="utf-8")

    def run_batch(self, expected):
        target = self.folder / f"out-{self.batches}.jsonl"
        while True:
            process = self.start(target)
            known = self.disturb(process, target)
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

    def disturb_launcher(self, members):
        """Kills or stops one of them, the one with the worker or the one that waits its turn."""
        launchers = [pid for pid, (_, name, state) in members.items()
                     if name == "hyb-launcher" and state != "T"]
        if len(launchers) != 2 or self.launchers == self.args.launchers:
            return
        chosen = self.draw.choice(launchers)
        is_stopped = self.launchers % 2 == 1
        workers = [pid for pid, (parent, name, _) in members.items()
                   if name == "hyb-worker" and parent == chosen]
        if is_stopped and not workers:
            return  # one that waits its turn is not missed
        signals = [(chosen, signal.SIGSTOP if is_stopped else signal.SIGKILL)]
        if is_stopped and self.draw.random() < 0.8:
            signals.append((workers[0], signal.SIGKILL))
        for pid, number in signals:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        self.launchers += 1
        self.stopped += is_stopped

    def watch(self, target, seen):
        """(bytes of results, since when there are no more): fails after too long."""
        size = target.stat().st_size if target.exists() else 0
        now = time.monotonic()
        if size != seen[0]:
            return size, now
        self.longest = max(self.longest, now - seen[1])
        if now - seen[1] > PATIENCE:
            self.fail(f"no result for {PATIENCE} s")
        return seen

    def disturb(self, process, target):
        """Kills until the engine has ended; the pids of all processes that it had."""
        known, seen = set(), (-1, time.monotonic())
        kills_engine = self.engines < self.args.engines and self.draw.random() < 0.8
        end = time.monotonic() + self.draw.uniform(0.1, self.args.life)
        while process.poll() is None:
            pause = time.monotonic() + self.draw.uniform(0.02, self.args.pause)
            while process.poll() is None and time.monotonic() < pause:
                known.update(family(process.pid))
                seen = self.watch(target, seen)
                time.sleep(0.01)
            if kills_engine and time.monotonic() > end:
                known.update(family(process.pid))
                process.kill()
                process.wait()
                self.engines += 1
                break
            members = family(process.pid)
            self.disturb_launcher(members)
            worker = [pid for pid, (_, name, _) in members.items() if name == "hyb-worker"]
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
    parser.add_argument("--launchers", type=int, default=50, help="the same")
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
        while (trial.workers < args.workers or trial.engines < args.engines or
               trial.launchers < args.launchers):
            trial.run_batch(expected)
            print(f"{trial.batches} batches, {trial.workers} workers, {trial.launchers} launchers "
                  f"and {trial.engines} engines killed, {time.monotonic() - begin:.0f} s",
                  file=sys.stderr, flush=True)
        print(f"{trial.batches} batches of {args.lines} lines, {trial.workers} workers, "
              f"{trial.launchers} launchers ({trial.stopped} stopped) and {trial.engines} engines "
              "killed: every id once, the bytes of the undisturbed batch; at most "
              f"{trial.longest:.1f} s without a result; processes gone "
              f"{1000 * max(trial.gone):.0f} ms after their engine at most, "
              f"{len(trial.gone)} ends")


if __name__ == "__main__":
    sys.exit(main())
