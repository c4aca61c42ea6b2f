#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel, as ptxas reports them without a card.

    scripts/card/ptxas.py            # writes kernels/cuda/ptxas.tsv
    scripts/card/ptxas.py FILE...    # the rows of some files, which may be gone by now
    scripts/card/ptxas.py --check    # exit status 1 and one line per finding: a spill, a kernel
                                 # with over 8 registers more than in the table, or not in it
    scripts/card/ptxas.py --only 90 [FILE...]  # sm_90's registers alone: a quarter of the time
    scripts/card/ptxas.py --check --only 90    # compiles only the files that have changed since
                                 # sm_90's registers were written: the table has a hash of the
                                 # code and compiler, `sources_90`, of files that do not spill
    scripts/card/ptxas.py --compile-for 100 120    # for cards that the table does not have: exit
                                 # status 1 and the reason where a kernel does not compile or
                                 # spills

What was compiled is kept in build/ptxas by the hash of the file and all that it includes, without
comments.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from check.cpp_code import without_comments

TOP = pathlib.Path(__file__).resolve().parents[2]
TABLE = "kernels/cuda/ptxas.tsv"
ARCHITECTURES = ["80", "86", "89", "90"]
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DHYB_HAS_CUDA=true", f"-I{TOP}",
         "-Xptxas", "-v"]
PARSER = 1  # another number when parse() reads something else: what was kept is made again
REGISTERS_MORE_MAX = 8
COUNTS = [*(f"registers_{a}" for a in ARCHITECTURES), "spill_bytes", "shared_bytes"]
HASHED = "90"  # the architecture whose registers the table's last column answers for
COLUMNS = ["file", "kernel", *COUNTS, f"sources_{HASHED}"]


def find_nvcc():
    usual = "/usr/local/cuda/bin/nvcc"
    return shutil.which("nvcc") or (usual if pathlib.Path(usual).exists() else None)


def with_includes(path, seen):
    """The file and what it includes of this repository."""
    if path in seen:
        return
    seen.add(path)
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
        if (TOP / name).is_file():
            with_includes(TOP / name, seen)


def has_kernels(path):
    files = set()
    with_includes(path, files)
    return any("__global__" in file.read_text() for file in files)


@functools.cache
def code_of(path):
    """The file's words without comments and line breaks."""
    return " ".join(without_comments(path.read_text()).split())


def hash_of(path, how=""):
    """Of the code of the file and all that it includes of this repository, and of how it is
    compiled."""
    files = set()
    with_includes(path, files)
    key = hashlib.sha256(how.encode())
    for file in sorted(files):
        key.update(f"{file.relative_to(TOP)}\0{code_of(file)}".encode())
    return key.hexdigest()[:12]


def sources_of(path, nvcc_version):
    """What the table's last column has. The compiler's flags count, the repository's place not."""
    flags = [flag for flag in FLAGS if str(TOP) not in flag]
    return hash_of(path, f"{PARSER} {nvcc_version}{flags}")


def demangled(names):
    """Kernels' names with their template arguments and nothing else."""
    text = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True,
                          text=True).stdout
    kernels = {}
    for name, full in zip(names, text.splitlines()):
        short = re.sub(r"hyb::kernels::|cuda::|\(anonymous namespace\)::", "", full)
        short = re.sub(r"\((bool|int)\)", "", short).replace("> >", ">>").removeprefix("void ")
        depth = 0
        for i, letter in enumerate(short):  # the parameter list is outside of all <>
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                short = short[:i]
                break
        kernels[name] = short
    return kernels


def parse(text):
    """{kernel: {architecture: [registers, spill bytes, shared bytes]}} of what ptxas printed."""
    found, current = {}, None
    for line in text.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)'", line):
            current = entry.groups()
        elif spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(spills.group(1)) + int(spills.group(2))
        elif (used := re.search(r"Used (\d+) registers", line)) and current:
            shared = re.search(r"(\d+) bytes smem", line)
            kernel = found.setdefault(current[0], {})
            kernel[current[1]] = [int(used.group(1)), spilled,
                                  int(shared.group(1)) if shared else 0]
            current = None
    names = demangled(sorted(found))
    return {names[name]: found[name] for name in sorted(found)}


def gencode_of(architectures):
    """PTX is made once per generation, of its first architecture, since the kernels distinguish
    no more than generations (NV_IF_TARGET); ptxas then runs for each architecture."""
    first = {}
    for architecture in sorted(architectures, key=int):
        first.setdefault(min(int(architecture) // 10, 10), architecture)
    return [f"-gencode=arch=compute_{first[min(int(a) // 10, 10)]},code=sm_{a}"
            for a in architectures]


@functools.cache
def version_of(nvcc):
    return subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout


def compiled(path, nvcc, kept, architectures):
    """The file's kernels and its machine code (.cubin of one architecture, else .fatbin), from an
    earlier run where nothing has changed."""
    name = f"{path.stem}-{'+'.join(architectures)}"
    kept.mkdir(parents=True, exist_ok=True)
    result = kept / f"{name}-{sources_of(path, version_of(nvcc))}.json"
    kind = "cubin" if len(architectures) == 1 else "fatbin"
    code = result.with_suffix(f".{kind}")
    if result.exists():
        return json.loads(result.read_text()), code
    for old in kept.glob(f"{name}-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        # The host's half, too: its launches can fail where the kernels do not.
        run = subprocess.run([nvcc, *FLAGS, *gencode_of(architectures), "-c", "--keep",
                              "--keep-dir", folder, "-o", f"{folder}/object", path],
                             capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{path.relative_to(TOP)} does not compile:\n{run.stderr}{run.stdout}")
        [made] = pathlib.Path(folder).glob(f"*.{kind}")
        shutil.move(made, code)
    kernels = parse(run.stderr + run.stdout)
    result.write_text(json.dumps(kernels))
    return kernels, code


def sources(files=()):
    """The .cu files with kernels: all, or those of some."""
    return sorted(path for path in (TOP / "kernels").rglob("*.cu")
                  if (not files or path in files) and has_kernels(path))


def compile_all(nvcc, kept, architectures, paths, jobs):
    """(path, kernels, code) of the .cu files."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda path: compiled(path, nvcc, kept, architectures), paths)
        return [(path, *result) for path, result in zip(paths, results)]


def measure(nvcc, kept, architectures, paths, jobs):
    """{(file, kernel): row of the table}, of the architectures requested."""
    rows = {}
    for path, kernels, _ in compile_all(nvcc, kept, architectures, paths, jobs):
        spills = any(kernel.get(HASHED, [0, 0, 0])[1] > 0 for kernel in kernels.values())
        for name, by_architecture in sorted(kernels.items()):
            row = {f"registers_{a}": used[0] for a, used in by_architecture.items()}
            row["spill_bytes"] = max(used[1] for used in by_architecture.values())
            row["shared_bytes"] = max(used[2] for used in by_architecture.values())
            if HASHED in architectures:
                row[COLUMNS[-1]] = "spills" if spills else sources_of(path, version_of(nvcc))
            rows[(str(path.relative_to(TOP)), name)] = row
    return rows


def compile_for(nvcc, kept, architectures, paths, jobs):
    """Prints every spill, and how many kernels there are. Exit status."""
    names = ", ".join(f"sm_{a}" for a in architectures)
    compiled_files = compile_all(nvcc, kept, architectures, paths, jobs)
    spills = [f"{path.relative_to(TOP)} {name}: spills {used[1]} bytes on sm_{architecture}"
              for path, kernels, _ in compiled_files for name, by_architecture in kernels.items()
              for architecture, used in by_architecture.items() if used[1] > 0]
    for line in spills:
        print(line)
    kernels = sum(len(kernels) for _, kernels, _ in compiled_files)
    print(f"{kernels} kernels of {len(compiled_files)} files compile for {names}, "
          f"{len(spills)} spill")
    return 1 if spills else 0


def write_table(rows):
    lines = ["\t".join(COLUMNS)]
    lines += ["\t".join([*key, *(str(row.get(name, -1)) for name in COLUMNS[2:])])
              for key, row in sorted(rows.items())]
    (TOP / TABLE).write_text("\n".join(lines) + "\n")


def read_table():
    """{(file, kernel): {column: value}}; -1: not compiled."""
    header, *lines = [line.split("\t") for line in (TOP / TABLE).read_text().splitlines()]
    return {(line[0], line[1]): {name: int(value) if name in COUNTS else value
                                 for name, value in zip(header[2:], line[2:])} for line in lines}


def changed(paths, table, version):
    """Files whose rows answer for other sources or another compiler than today's."""
    hashes = {file: row.get(COLUMNS[-1]) for (file, _), row in table.items()}
    return [path for path in paths
            if hashes.get(str(path.relative_to(TOP))) != sources_of(path, version)]


def findings(rows, table):
    """What --check says."""
    for key, row in rows.items():
        if row["spill_bytes"] > 0:
            yield f"{' '.join(key)}: spills {row['spill_bytes']} bytes"
        if key not in table:
            yield f"{' '.join(key)}: not in {TABLE}; run scripts/card/ptxas.py"
            continue
        for name in COUNTS[:len(ARCHITECTURES)]:
            if row.get(name, 0) > table[key][name] + REGISTERS_MORE_MAX:
                yield f"{' '.join(key)}: {name} {row[name]}, {table[key][name]} in the table"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help=".cu files (default: all)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=pathlib.Path, default=TOP / "build/ptxas",
                        help="folder for results (default: build/ptxas)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: 2)")
    parser.add_argument("--only", choices=ARCHITECTURES, help="one architecture")
    parser.add_argument("--compile-for", nargs="+", metavar="ARCH", help="such as 100 120")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("nvcc is not here")
        return 0
    paths = sources({file.resolve() for file in options.files})
    if options.compile_for:
        return compile_for(nvcc, options.keep, options.compile_for, paths, options.jobs)
    architectures = [options.only] if options.only else ARCHITECTURES
    table = read_table()
    if options.check and architectures == [HASHED]:
        stale = changed(paths, table, version_of(nvcc))
        print(f"{len(paths) - len(stale)} of {len(paths)} files are as in {TABLE}")
        paths = stale
    rows = measure(nvcc, options.keep, architectures, paths, options.jobs)
    if options.check:
        found = list(findings(rows, table))
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    names = {str(path.relative_to(TOP)) for path in paths}
    others = {key: row for key, row in table.items()
              if key[0] not in names and (options.files or (TOP / key[0]).exists())}
    for key, row in rows.items():
        row["spill_bytes"] = max(row["spill_bytes"], table.get(key, row)["spill_bytes"]
                                 if options.only else 0)
    write_table(others | {key: table.get(key, {}) | row for key, row in rows.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
