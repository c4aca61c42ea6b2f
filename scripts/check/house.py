#!/usr/bin/env python3
"""How the code is cut, as a table with one column per commit.

    scripts/check/house.py [COMMIT...]     # default: the commit that was reviewed last, and HEAD
    scripts/check/house.py --way build-dev # the sources on the way of `hyb run`

Methods are counted as scripts/tidy.py counts them; the lines of a class are those of its body and
of the functions that its folder defines for it. The way is what valgrind's callgrind counts, by
lines of the sources: those with more instructions in a run of four tokens than in one of a single
token, and the others that run. It takes a build with line numbers (preset dev). Valgrind has no
AVX-512, so the vector code is AVX2's.
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

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

import tidy
from check import cpp_code

TOP = tidy.TOP
ROOMS = ["core", "kernels", "models", "app"]
SOURCES = (".cpp", ".h", ".cu", ".cuh")
BEFORE = "1c6f1bd"
CLASSES, FUNCTIONS = 10, 5  # the largest, the longest

# A change of each kind touches the files that know its name: what stands for one of its kind, and
# the rooms where it is looked for.
CHANGES = {
    "a family (lfm2)": (r"\blfm2(_family)?\b(?!-)", ROOMS),
    "a part (short convolution)": (r"\b(ShortConv|short_conv)\w*", ["models", "app"]),
    "an activation (relu2)": (r"\brelu2\b", ["kernels", "models", "app"]),
    "a flag of bench (--ignore-eos)": (r"--ignore-eos|\bignore_eos\b", ["app/bench"]),
    "a sampling parameter (min_p)": (r"\bmin_p\b|--min-p\b", ROOMS),
    "an option (--lossless)": (r"\blossless\b|--lossless\b", ROOMS),
}
# Words of options: a comparison with one is a choice that was not made when options were parsed.
OPTION_WORDS = ("auto|on|off|none|all|int8|bf16|f16|f32|cpu|cuda|flat|mapped|ngram|model|"
                "always|never")
COMPARED = re.compile(rf'[=!]=\s*"(?:{OPTION_WORDS})"|"(?:{OPTION_WORDS})"\s*[=!]=')
# Numbers that go from the command line to the kernels: the words that stand for each.
NUMBERS = {
    "tokens of a step": r"(?:chunk|step)_tokens(?:_max)?",
    "tokens of a page": r"page_tokens",
}


def sources_of(commit):
    """{path: text} of the product's sources."""
    data = subprocess.run(["git", "archive", commit, *ROOMS], cwd=TOP, check=True,
                          capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read().decode()
                for member in archive if member.name.endswith(SOURCES)}


def percent(part, whole):
    return f"{100 * part / whole:.0f} %"


def size_rows(texts):
    def counts(names):
        headers = sum(name.endswith((".h", ".cuh")) for name in names)
        lines = sum(len(texts[name].splitlines()) for name in names)
        return f"{len(names)} / {headers} / {lines}"

    for room in ROOMS:
        yield (f"{room}: files / headers / lines",
               counts([name for name in texts if name.startswith(room + "/")]))
    yield "files / headers / lines", counts(list(texts))
    lengths = [len(text.splitlines()) for text in texts.values()]
    yield "median file", f"{statistics.median(lengths):.0f} lines"
    yield "files of at most 50 lines", percent(sum(n <= 50 for n in lengths), len(lengths))
    yield "longest file", f"{max(lengths)} lines"
    yield f"files of more than {tidy.FILE_LINES} lines", sum(n > tidy.FILE_LINES for n in lengths)


def function_rows(functions):
    """Of {path: spans of functions}."""
    rows = sorted(((lines, name) for spans in functions.values() for _, lines, name in spans),
                  reverse=True)
    lengths = [lines for lines, _ in reversed(rows)]
    yield "functions", len(rows)
    yield ("functions: median / 90th percentile",
           f"{statistics.median(lengths):.0f} / {lengths[len(lengths) * 9 // 10]} lines")
    for place, (lines, name) in enumerate(rows[:FUNCTIONS], 1):
        yield f"function {place} by lines", f"{name} {lines}"


def class_rows(codes, functions):
    found = []
    types = 0
    for path, code in codes.items():
        types += len(re.findall(r"\benum (?:class |struct )?\w+[^;{}()]*\{", code))
        folder = path.rpartition("/")[0]
        beside = [span for name, spans in functions.items() if name.rpartition("/")[0] == folder
                  for span in spans]
        for _, lines, name, methods in cpp_code.classes(code):
            types += 1
            outside = sum(span[1] for span in beside if span[2].startswith(name + "::"))
            found.append((lines + outside, methods, name))
    yield "types defined", types
    yield (f"classes of more than {tidy.CLASS_METHODS} methods",
           sum(methods > tidy.CLASS_METHODS for _, methods, _ in found))
    for place, (lines, methods, name) in enumerate(sorted(found, reverse=True)[:CLASSES], 1):
        yield f"class {place} by lines", f"{name} {lines} lines, {methods} methods"


def word_rows(texts, codes):
    app = [text for name, text in texts.items() if name.startswith("app/")]
    yield "comparisons with words of options in app", sum(len(COMPARED.findall(t)) for t in app)
    for number, words in NUMBERS.items():
        names, files, fields = set(), 0, 0
        for code in codes.values():
            here = re.findall(rf"\b{words}_?\b", code)
            names.update(here)
            files += bool(here)
            declared = rf"^ +(?:const )?[\w:]+ {words}_?(?: = [^,;()]+)?;"
            fields += len(re.findall(declared, code, re.M))
        yield (f"{number}: names / members and locals / files",
               f"{len(names)} / {fields} / {files}")
    for change, (pattern, rooms) in CHANGES.items():
        touched = [name for name in texts if name.startswith(tuple(room + "/" for room in rooms))
                   and re.search(pattern, texts[name])]
        yield f"files that know {change}", len(touched)


def figures(commit):
    """{row: value} of one commit."""
    texts = sources_of(commit)
    codes = {name: cpp_code.without_comments_and_strings(text) for name, text in texts.items()}
    functions = {name: cpp_code.function_spans(code) for name, code in codes.items()}
    return dict([*size_rows(texts), *class_rows(codes, functions), *function_rows(functions),
                 *word_rows(texts, codes)])


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
