#!/usr/bin/env python3
"""How the code is cut, as a table with one column per commit.

    scripts/house.py [COMMIT...]         # default: the first commit that had this layout, and HEAD
    scripts/house.py --way build-dev     # the sources on the way of `hyb run`

The way is read from the calls of a real run, which valgrind's callgrind counts: the sources with a
function on a path of calls from main to the engine's step, or from there to vector code. Below them
are all sources with code that runs within a step. It takes a build without unity builds (preset
dev), whose objects say which source defines what; a function that several define (a template, or
inline) belongs to none.
"""

import argparse
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile

import tidy

TOP = tidy.TOP
ROOMS = ["core", "kernels", "models", "app"]
SOURCES = (".cpp", ".h", ".cu", ".cuh")
BEFORE = "41e33dc"

# A change of each kind touches the files that know its name: what stands for one of its kind, and
# the rooms where it is looked for.
CHANGES = {
    "a family (lfm2)": (r"\blfm2(_family)?\b(?!-)", ROOMS),
    "a part (short convolution)": (r"\b(ShortConv|short_conv)\w*", ["models", "app"]),
    "an activation (relu2)": (r"\brelu2\b", ["kernels", "models", "app"]),
    "a flag of bench (--ignore-eos)": (r"--ignore-eos|\bignore_eos\b", ["app/bench"]),
}


def checkout(commit, folder):
    data = subprocess.run(["git", "archive", commit, *ROOMS], cwd=TOP, check=True,
                          capture_output=True).stdout
    tarfile.open(fileobj=io.BytesIO(data)).extractall(folder)


def sources_below(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in SOURCES]


def percent(part, whole):
    return f"{100 * part / whole:.0f} %"


def figures(commit):
    """{row: value} of one commit."""
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        checkout(commit, top)
        lengths, functions = [], []
        for room in ROOMS:
            paths = sources_below(top / room)
            headers = [path for path in paths if path.suffix in (".h", ".cuh")]
            lines = [len(path.read_text().splitlines()) for path in paths]
            counts = len(paths), len(headers), sum(lines)
            rows[f"{room}: files / headers / lines"] = " / ".join(map(str, counts))
            lengths += lines
            for path in paths:
                code = tidy.without_comments_and_strings(path.read_text())
                functions += [span[1] for span in tidy.function_spans(code)]
        rows["files / headers / lines"] = " / ".join(str(sum(
            int(rows[f"{room}: files / headers / lines"].split(" / ")[i]) for room in ROOMS))
            for i in range(3))
        rows["median file"] = f"{statistics.median(lengths):.0f} lines"
        rows["files of at most 50 lines"] = percent(sum(n <= 50 for n in lengths), len(lengths))
        rows["longest file"] = f"{max(lengths)} lines"
        functions.sort()
        rows["functions: median / 90th percentile / longest"] = (
            f"{statistics.median(functions):.0f} / {functions[len(functions) * 9 // 10]} / "
            f"{functions[-1]} lines")
        memory = "".join(tidy.without_comments_and_strings(path.read_text())
                         for path in sources_below(top / "core/memory"))
        types = set(re.findall(r"^ *(?:enum )?(?:class|struct) (\w+)[^;{()]*\{", memory, re.M))
        rows["types in core/memory"] = str(len(types))
        for change, (pattern, rooms) in CHANGES.items():
            touched = [path for room in rooms for path in sources_below(top / room)
                       if re.search(pattern, path.read_text())]
            rows[f"files that know {change}"] = str(len(touched))
    return rows


def sources_by_symbol(build):
    """{mangled name: the one source whose object defines it}"""
    sources = {}
    for path in sorted(build.glob("CMakeFiles/hyb*.dir/**/*.o")):
        if "hyb_tests" in str(path) or "hyb_perf" in str(path):
            continue
        listing = subprocess.run(["nm", "--defined-only", path], check=True, capture_output=True,
                                 text=True).stdout
        source = re.sub(r"^.*?\.dir/", "", str(path))[:-len(".o")]
        for symbol in re.findall(r"^[0-9a-f]+ [TtWw] (\S+)$", listing, re.M):
            sources.setdefault(symbol.split(".")[0], set()).add(source)
    return {symbol: min(found) for symbol, found in sources.items() if len(found) == 1}


def calls_of_run(build):
    """{function: the functions that it calls}, by mangled names, while `hyb run` answers."""
    with tempfile.NamedTemporaryFile("r") as counts:
        subprocess.run(["valgrind", "--quiet", "--tool=callgrind", "--demangle=no",
                        "--compress-strings=no", f"--callgrind-out-file={counts.name}",
                        build / "hyb", "run", "-p", "Hello", "-n", "8", "--threads", "1"],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        calls, caller = {}, None
        for line in counts:
            kind, _, symbol = line.rstrip().partition("=")
            if kind == "fn":
                caller = symbol.split(".")[0]
            elif kind == "cfn":
                calls.setdefault(caller, set()).add(symbol.split(".")[0])
    return calls


def reachable(calls, starts):
    found, waiting = set(starts), list(starts)
    while waiting:
        for function in calls.get(waiting.pop(), ()):
            if function not in found:
                found.add(function)
                waiting.append(function)
    return found


def print_way(build):
    sources = sources_by_symbol(build)
    calls = calls_of_run(build)
    callers = {}
    for caller, callees in calls.items():
        for callee in callees:
            callers.setdefault(callee, set()).add(caller)
    step = [function for function in calls if function.startswith("_ZN3hyb6Engine4stepE")]
    within = reachable(calls, step)
    vector_code = [function for function in within if "avx" in sources.get(function, "")]
    way = reachable(callers, step) | (within & reachable(callers, vector_code))
    on_the_way = sorted({sources[function] for function in way if function in sources})
    running = sorted({sources[function] for function in within if function in sources})
    print(*on_the_way, f"{len(on_the_way)} sources on the way", "", sep="\n")
    print(*running, f"{len(running)} sources with code that runs in a step", sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=[BEFORE, "HEAD"])
    parser.add_argument("--way", metavar="BUILD", type=pathlib.Path,
                        help="a build folder: list the sources on the way of `hyb run`")
    options = parser.parse_args()
    if options.way:
        print_way(options.way)
        return 0
    columns = [figures(commit) for commit in options.commits]
    print("| |", *[f" {commit} |" for commit in options.commits], sep="")
    print("|---|", "---|" * len(columns), sep="")
    for row in columns[-1]:
        print(f"| {row} |", *[f" {column.get(row, '')} |" for column in columns], sep="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
