#!/usr/bin/env python3
"""How the code is cut, as a table with one column per commit.

    scripts/house.py [COMMIT...]         # default: the first commit that had this layout, and HEAD
    scripts/house.py --way build-dev     # the sources on the way of `hyb run`

The way is what valgrind's callgrind counts, by lines of the sources: those with more instructions
in a run of four tokens than in one of a single token, and the others that run. It takes a build
with line numbers (preset dev). Valgrind has no AVX-512, so the vector code is AVX2's.
"""

import argparse
import collections
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


def instructions_of_run(build, tokens):
    """{source: instructions of its lines} of a run that answers with `tokens` tokens."""
    with tempfile.NamedTemporaryFile("r") as counts:
        subprocess.run(["valgrind", "--quiet", "--tool=callgrind", "--compress-strings=no",
                        "--compress-pos=no", f"--callgrind-out-file={counts.name}",
                        build / "hyb", "run", "demo", "-p", "Hello", "-n", str(tokens),
                        "--threads", "1", "--device", "cpu"],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        totals, source, is_of_call = collections.Counter(), None, False
        for line in counts:
            kind, equals, value = line.rstrip().partition("=")
            if kind in ("fl", "fi", "fe"):
                found = re.search(rf"(?:^|/)((?:{'|'.join(ROOMS)})/\S+)$", value)
                source = found and found.group(1)
            elif kind == "calls":
                is_of_call = True  # the next line has the cost of the function called
            elif not equals and line[:1].isdigit():
                if source and not is_of_call:
                    totals[source] += int(line.split()[1])
                is_of_call = False
    return totals


def print_way(build):
    short, long = (instructions_of_run(build, tokens) for tokens in (1, 4))
    for title, sources in {
            "run while tokens are generated": [s for s in long if long[s] > short[s]],
            "run before and after only": [s for s in long if long[s] <= short[s]]}.items():
        print(f"{len(sources)} sources {title}")
        for room in ROOMS:
            names = sorted(s for s in sources if s.startswith(room + "/"))
            print(f"  {room} {len(names)}:", *(name.removeprefix(room + "/") for name in names))


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
