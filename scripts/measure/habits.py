"""What all measurements share: programs in turns, medians with their spread, tables in Markdown."""

import json
import os
import pathlib
import statistics
import subprocess
import time

MEGABYTE = 1e6


def failure(command, code, errors):
    return SystemExit(f"{' '.join(map(str, command))}: exit {code}\n{errors[-2000:]}")


def hyb_json(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise failure(command, done.returncode, done.stderr)
    return json.loads(done.stdout)


def in_turns(rounds, *measures):
    """The results of each function, a list per function. The one that begins changes from round
    to round, so that what else the machine does meets all of them."""
    found = [[] for _ in measures]
    for number in range(rounds):
        order = list(zip(found, measures))
        for results, measure in order if number % 2 == 0 else reversed(order):
            results.append(measure())
    return found


def spread(values, digits, unit=""):
    """The median, the least and the largest."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f}{unit} ({least:.{digits}f} to {most:.{digits}f})"


def print_table(columns, rows):
    """Each row as it comes, then how busy the machine was."""
    load = lambda: " ".join(f"{value:.1f}" for value in os.getloadavg())
    before = load()
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"\nload average {before} before, {load()} after")


def pss_bytes(pid):
    """Proportional set size of a process, in which a page that is mapped twice counts once."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def nameless_bytes(pid, folder):
    """(length, taken on disk) of the process's files in the folder, which have no name."""
    length, taken = 0, 0
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not str(link.readlink()).startswith(str(folder)):
                continue
            status = link.stat()
        except OSError:  # closed meanwhile
            continue
        length, taken = length + status.st_size, taken + 512 * status.st_blocks
    return length, taken


class Watch:
    """The largest memory of a process, and the largest files of a folder, while a command runs."""

    def __init__(self, command, folder=None):
        self.pss, self.length, self.taken, self.samples = 0, 0, 0, 0
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, encoding="utf-8") as process:
            while process.poll() is None:
                begin = time.perf_counter()
                try:
                    self.look(process.pid, folder)
                except (OSError, StopIteration):  # it has just ended
                    continue
                # Looking takes the locks that mapping takes too: no more than a fifth of the time.
                time.sleep(max(0.005, 4 * (time.perf_counter() - begin)))
            errors = process.stderr.read()
        if process.returncode != 0:
            raise failure(command, process.returncode, errors)

    def look(self, pid, folder):
        self.pss = max(self.pss, pss_bytes(pid))
        if folder is not None:
            length, taken = nameless_bytes(pid, folder)
            self.length, self.taken = max(self.length, length), max(self.taken, taken)
        self.samples += 1
