#!/usr/bin/env python3
"""Checks the house rules that a machine can check; see README.md of each room for the rules.

    scripts/tidy.py            # exit status 1 and one line per finding
    scripts/tidy.py --english  # the banned words only, with their counts

    scripts/tidy.py --lower    # writes figures that fell into the list of exceptions

An exception is a line `rule path  # reason` in scripts/tidy_exceptions.txt; one that is no longer
needed is a finding too. Those of the budgets, `file path lines  # reason`, `class path:Class
methods  # reason`, `words path words  # reason` and `paragraph path words  # reason`, state today's
figure: a larger one is a finding, and so is a smaller one until it is written there.
"""

import ast
import collections
import io
import os
import pathlib
import re
import subprocess
import sys
import tokenize

from check import python_code
from check.cpp_code import (
    classes, declarations, free_function, function_spans, type_or_constant,
    without_comments_and_strings)

TOP = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["core", "kernels", "models", "app"]  # each may include itself and what stands before it
EXCEPTIONS = TOP / "scripts/tidy_exceptions.txt"
FILE_LINES, FUNCTION_LINES, KERNEL_LINES, LINE_COLUMNS, CLASS_METHODS = 600, 70, 100, 100, 40
README_WORDS, PARAGRAPH_WORDS = 600, 100

BANNED = [  # (rule, pattern, where it is allowed, what to do instead)
    ("preprocessor", r"^\s*#\s*(if|ifdef|ifndef|define|undef)\b", r"^tests/",
     "if constexpr, constants"),
    ("printf", r"\bf?printf\s*\(", r"^tests/", "app/ui writes; core/base/log.h logs"),
    ("new", r"(?<![\w#])new\s+[A-Za-z_]\w*\s*[({\[<]", None, "values, unique_ptr"),
    ("shared_ptr", r"\bshared_ptr\b", r"^core/base/log\.cpp$", "values, unique_ptr"),
    ("getenv", r"\bgetenv\b", r"^(app/machine/environment\.cpp$|tests/)",
     "app/machine/environment.h"),
    ("todo", r"\b(TODO|FIXME|XXX)\b", None, "an issue"),
    ("stdout", r"\bstd::c(out|err)\b", r"^(app/|tests/)", "return values; app talks"),
]
# Words in comments, strings and READMEs: (pattern, what to write instead). Each is good English
# elsewhere, but was used here in a sense that readers stumble over.
ENGLISH = [
    (r"anew", "again"),
    (r"asked(?! to stop|`)", "requested, given, needed"),
    (r"behind(?! (the|its|an|one) (interface|proxy|flag))", "after, following"),
    (r"beside the host", "asynchronously"),
    (r"books?", "state, accounts"),
    (r"deals?|dealt|dealing", "split, distribute, handle"),
    (r"desks?", "the name of the class"),
    (r"g[ai]ves? way|giving way|given way", "frees, releases, yields"),
    (r"hears?|heard|hearing", "is notified, reads"),
    (r"lands?|landed|landing", "arrive, complete, drain"),
    (r"mend(s|ed|ing)?", "fix, repair"),
    (r"(?<!there )(is|are|was|were) no (command|fields?|numbers|regular|results?)", "is not a"),
    (r"nobody|somebody", "no one, none, an owner"),
    (r"as new(?! as)|so many", "n, the number of"),
    (r"stands?(?! for)|stood|standing(?! for)", "is, comes, holds"),
    (r"tell(s|ing)?(?! (apart|me))|told", "report, emit, pass, distinguish"),
    (r"the begin", "the start"),
    (r"(?<!guess )who(ever|m)?", "which, that, the caller"),
    (r"wish(es|ed|ing)?", "option, request"),
]
ROOM_BANNED = {  # includes that a room may not have
    "core": r'<cuda|"kernels/|<CLI/',
    "kernels": r'"core/(engine|memory|text)/|<CLI/|<nlohmann',
    "models": r"<CLI/|\.cuh",
    "app": r"<cuda|\.cuh",
}

LEAF_FOLDERS = {  # folders that nothing includes but these
    # the laboratory: policies of other systems
    "app/replay/": ["app/commands/replay.cpp", "app/commands/bench.cpp"],
}
ROUTES = ("kernels/simd/", "kernels/cuda/")  # declare what each op has in its own folder


def tracked(*suffixes):
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP,
                             check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in listing if name.endswith(suffixes) and (TOP / name).is_file()]


def check_cpp(name):
    text = (TOP / name).read_text()
    code = without_comments_and_strings(text)
    room = name.split("/")[0]
    for number, line in enumerate(code.split("\n"), 1):
        for rule, pattern, allowed, instead in BANNED:
            if re.search(pattern, line) and not (allowed and re.search(allowed, name)):
                yield rule, name, number, f"not here: {instead}"
    if room in ROOMS:
        for number, line in enumerate(text.split("\n"), 1):
            include = re.match(r'\s*#include\s*([<"].*)', line)
            if not include:
                continue
            target = re.match(r'"(\w+)/', include.group(1))
            if target and target.group(1) in ROOMS[ROOMS.index(room) + 1:] + ["tests"]:
                yield "arrow", name, number, f"{room} may not include {include.group(1)}"
            if re.search(ROOM_BANNED[room], include.group(1)):
                yield "arrow", name, number, f"{room} may not include {include.group(1)}"
    limit = KERNEL_LINES if name.endswith((".cu", ".cuh")) else FUNCTION_LINES
    for first, lines, function in function_spans(code):
        is_test = name.startswith("tests/") and function in ("TEST_SUITE", "TEST_CASE", "SUBCASE")
        if lines > limit and not is_test:
            yield "function", name, first, f"{function} has {lines} lines, at most {limit}"
    for first, _, type_name, methods in classes(code):
        if methods > CLASS_METHODS:
            text = f"{type_name} has {methods} methods, at most {CLASS_METHODS}"
            yield "class", f"{name}:{type_name}", first, text, methods


def check_python(name):
    for node in ast.walk(ast.parse((TOP / name).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                text = f"{node.name} has {lines} lines, at most {FUNCTION_LINES}"
                yield "function", name, node.lineno, text


def check_text(name):
    lines = (TOP / name).read_text().rstrip("\n").split("\n")
    if len(lines) > FILE_LINES:
        yield "file", name, len(lines), f"{len(lines)} lines, at most {FILE_LINES}", len(lines)
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS and "http" not in line:
            yield "line", name, number, f"{len(line)} columns, at most {LINE_COLUMNS}"


def prose_of(text):
    """Paragraphs and list items of a README, without tables, code and headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\||#)", text):
        if not re.match(r"\s*[|#]| {4}(?![-*]|\d+\.)|\s*$", block.lstrip("\n")):
            yield block


def check_readme(name):
    if name.endswith("CHANGELOG.md"):
        return
    counts = [len(block.split()) for block in prose_of((TOP / name).read_text())]
    for rule, count, most in (("words", sum(counts), README_WORDS),
                              ("paragraph", max(counts, default=0), PARAGRAPH_WORDS)):
        if count > most:
            yield rule, name, 1, f"{count} words outside of tables, at most {most}", count


def check_paths(name):
    """A script that a text names is there."""
    for number, line in enumerate((TOP / name).read_text().split("\n"), 1):
        for path in re.findall(r"scripts/[\w/.-]+\.(?:py|sh|cmake)\b", line):
            if not (TOP / path).is_file():
                yield "path", name, number, f"there is no {path}"


def check_modes(scripts):
    """A script that begins with #! can be run by its name."""
    for name in scripts:
        path = TOP / name
        if path.read_bytes()[:2] == b"#!" and not os.access(path, os.X_OK):
            yield "mode", name, 1, "begins with #! and is not executable: chmod +x"


def check_mirrors(sources):
    """tests/<room>/**/<stem>_test.cpp stands for <room>/**/<stem>.cpp."""
    known = set(sources)
    for name in sources:
        found = re.match(r"tests/(core|kernels|models|app)/(.*)_test\.cpp$", name)
        if found and "surface" not in name:
            stem = f"{found.group(1)}/{found.group(2)}"
            folder = TOP / stem
            has_source = any(f"{stem}{suffix}" in known for suffix in (".cpp", ".h"))
            if not has_source and not folder.is_dir():
                yield "mirror", name, 1, f"tests nothing named {stem}"


def includes_of(name):
    found = re.findall(r'^\s*#include\s*"([^"]+)"', (TOP / name).read_text(), re.M)
    return [target for target in found if target.split("/")[0] in ROOMS]


def cycles(edges):
    """Sets of folders that include each other, directly or on a way around (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(folder):
        number[folder] = low[folder] = len(number)
        stack.append(folder)
        for target in edges[folder]:
            if target not in number:
                visit(target)
            if target in stack:
                low[folder] = min(low[folder], low[target])
        if low[folder] == number[folder]:
            at = stack.index(folder)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for folder in list(edges):
        if folder not in number:
            visit(folder)
    return [members for members in found if len(members) > 1]


def check_folders(sources):
    """Folders do not include each other in a circle; a leaf is included by its users alone.

    Files at the top of a room belong to no folder.
    """
    edges = {}
    for name in sources:
        room, folder = name.split("/")[0], name.rpartition("/")[0]
        if room not in ROOMS:
            continue
        for target in includes_of(name):
            other = target.rpartition("/")[0]
            edges.setdefault(other, set())
            if folder != other and not {folder, other} & set(ROOMS):
                edges.setdefault(folder, set()).add(other)
            for leaf, users in LEAF_FOLDERS.items():
                if target.startswith(leaf) and not name.startswith((leaf, *users)):
                    yield "leaf", name, 1, f"nothing but {', '.join(users)} includes {leaf}"
    for members in cycles(edges):
        yield "cycle", members[0], 1, "includes go in a circle: " + ", ".join(members)


def check_declarations(sources):
    """What a header declares is defined in its own folder: who reads one finds the other.

    No .cpp file that may see the header has a nameless function, type or constant of the same
    name: other files, compiled together with that one (HYB_UNITY), would use it instead.
    """
    declared, nameless = [], []
    by_name, by_types = collections.defaultdict(set), collections.defaultdict(set)
    for name in sources:
        folder, suffix = name.rpartition("/")[0], pathlib.PurePath(name).suffix
        if name.split("/")[0] not in ROOMS:
            continue
        code = without_comments_and_strings((TOP / name).read_text())
        for place, space, head, has_body in declarations(code):
            found = free_function(head)
            function, types = found or (type_or_constant(head, has_body), None)
            if space.endswith("::"):
                if suffix == ".cpp":
                    nameless.append((name, space[:-2], function, types))
                continue
            if found and has_body:
                by_name[space, function].add(folder)
                by_types[space, function, types].add(folder)
            if function and suffix in (".h", ".cuh") and not name.startswith(ROUTES):
                line = code.count("\n", 0, place) + 1
                declared.append((name, line, folder, space, function, types))
    for name, line, folder, space, function, types in declared:
        for defined in by_types[space, function, types], by_name[space, function]:
            if types is not None and defined and folder not in defined:
                where = ", ".join(sorted(defined))
                yield "declared", name, line, f"{function}() is not defined here, but in {where}"
                break
    yield from check_hidden(declared, nameless)


def check_hidden(declared, nameless):
    by_name = collections.defaultdict(list)
    for name, line, _, space, function, types in declared:
        by_name[function, types].append((name, line, space))
    for other, inner, function, types in nameless:
        for name, line, space in by_name[function, types]:
            is_seen = ROOMS.index(name.split("/")[0]) <= ROOMS.index(other.split("/")[0])
            if is_seen and f"{inner}::".startswith(f"{space}::"):
                yield "hidden", name, line, f"{function} has the name of a nameless one of {other}"


CPP_PROSE = re.compile(r'//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)


def prose(name):
    """(line, text) of the English in a file: comments, strings with spaces; all of a README."""
    text = (TOP / name).read_text()
    if name.endswith(".md"):
        yield from enumerate(text.split("\n"), 1)
    elif name.endswith(".py"):
        starts = {node.body[0].lineno for node in ast.walk(ast.parse(text))
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                  and ast.get_docstring(node) is not None}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_docstring = token.type == tokenize.STRING and token.start[0] in starts
            if token.type == tokenize.COMMENT or is_docstring:
                yield from enumerate(token.string.split("\n"), token.start[0])
    else:
        for found in CPP_PROSE.finditer(text):
            piece = found.group()
            if piece.startswith("//") or (piece.startswith('"') and " " in piece):
                yield text.count("\n", 0, found.start()) + 1, piece


def check_english(name):
    for number, text in prose(name):
        for pattern, instead in ENGLISH:
            for found in re.finditer(rf"\b(?:{pattern})\b", text, re.I):
                yield "english", name, number, f"\"{found.group()}\" (rather: {instead})"


def english_findings():
    for name in tracked(".cpp", ".h", ".cu", ".cuh", ".md", ".py"):
        if name != "scripts/tidy.py":
            yield from check_english(name)


def print_english():
    """Every finding, then how many of each word."""
    words = collections.Counter()
    for rule, name, number, text in english_findings():
        print(f"{name}:{number}: {rule}: {text}")
        words[re.match(r'"(.*?)"', text).group(1).lower()] += 1
    for word, count in words.most_common():
        print(f"{count:6} {word}")
    return 1 if words else 0


def findings():
    sources = tracked(".cpp", ".h", ".cu", ".cuh")
    for name in sources:
        yield from check_cpp(name)
    scripts = tracked(".py")
    for name in scripts:
        yield from check_python(name)
    for name in sources + scripts:
        yield from check_text(name)
    readmes = tracked(".md")
    for name in readmes:
        yield from check_readme(name)
    for name in sources + scripts + readmes + tracked(".sh", ".cmake", ".txt", ".ci/run"):
        if name != "CHANGELOG.md":
            yield from check_paths(name)
    yield from python_code.findings(TOP, scripts)
    yield from check_modes(scripts)
    yield from check_mirrors(sources)
    yield from check_folders(sources)
    yield from check_declarations(sources)
    yield from english_findings()


def exceptions():
    """{(rule, path): figure}; without a figure where the rule is no budget."""
    rows = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            rule, name, *figure = line.split("#")[0].split()
            rows[(rule, name)] = int(figure[0]) if figure else None
    return rows


def judge(found, allowed):
    """One line per finding that no exception allows, and per exception that says too much."""
    unused = dict(allowed)
    for rule, name, number, text, *figure in found:
        unused.pop((rule, name), None)
        written, now = allowed.get((rule, name)), figure[0] if figure else None
        if (rule, name) not in allowed:
            yield f"{name}:{number}: {rule}: {text}"
        elif written != now and (written is None or now is None or now > written):
            yield f"{name}:{number}: {rule}: {text}; its exception says {written}"
        elif written != now:
            yield f"{EXCEPTIONS.name}: {rule} {name} fell to {now}: scripts/tidy.py --lower"
    for rule, name in unused:
        yield f"{EXCEPTIONS.name}: {rule} {name} is no longer needed"


def lowered(text, found):
    """The list of exceptions with the figures that fell, without budgets that hold again."""
    figures = {(rule, name): figure[0] for rule, name, _, _, *figure in found if figure}
    for line in text.splitlines(keepends=True):
        budget = re.match(r"(file|class|words|paragraph) (\S+) (\d+)", line)
        if not budget:
            yield line
        elif budget.groups()[:2] in figures:
            figure = min(int(budget[3]), figures[budget.groups()[:2]])
            yield line.replace(budget[0], f"{budget[1]} {budget[2]} {figure}", 1)


def main():
    if sys.argv[1:] == ["--english"]:
        return print_english()
    if sys.argv[1:] == ["--lower"]:
        EXCEPTIONS.write_text("".join(lowered(EXCEPTIONS.read_text(), list(findings()))))
    lines = list(judge(findings(), exceptions()))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
