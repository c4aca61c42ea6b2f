#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel, as ptxas reports them without a card.

    scripts/card/ptxas.py            # writes kernels/cuda/ptxas.tsv
    scripts/card/ptxas.py FILE...    # the rows of some files, which may be gone by now
    scripts/card/ptxas.py --check    # exit status 1 and one line per finding: a spill, a kernel
                                 # with over 8 registers more than in the table, or not in it
    scripts/card/ptxas.py --check --only 90    # for one architecture: a quarter of the time
    scripts/card/ptxas.py --compile-for 100 120    # for cards that the table does not have: exit
                                 # status 1 and the reason where a kernel does not compile or
                                 # spills

What was compiled is kept in build/ptxas by the hash of the file and all that it includes.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
TABLE = TOP / "kernels/cuda/ptxas.tsv"
ARCHITECTURES = ["80", "86", "89", "90"]
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DHYB_HAS_CUDA=true", f"-I{TOP}",
         "-Xptxas", "-v", "-fatbin"]  # without the host's half, which takes 5 s a file
PARSER = 1  # another number when parse() reads something else: what was kept is made again
REGISTERS_MORE_MAX = 8
COLUMNS = ["file", "kernel", *(f"registers_{a}" for a in ARCHITECTURES), "spill_bytes",
           "shared_bytes"]


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


def key_of(path, nvcc_version, architectures):
    files = set()
    with_includes(path, files)
    key = hashlib.sha256(f"{PARSER} {nvcc_version}{FLAGS}{architectures}".encode())
    for file in sorted(files):
        key.update(f"{file.relative_to(TOP)}\0".encode() + file.read_bytes())
    return key.hexdigest()[:32]


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


def compiled(path, nvcc, nvcc_version, kept, architectures):
    """The file's kernels, from an earlier run where nothing has changed."""
    name = f"{path.stem}-{'+'.join(architectures)}"
    result = kept / f"{name}-{key_of(path, nvcc_version, architectures)}.json"
    if result.exists():
        return json.loads(result.read_text())
    gencode = gencode_of(architectures)
    run = subprocess.run([nvcc, *FLAGS, *gencode, "-o", "/dev/null", str(path)],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{path.relative_to(TOP)} does not compile:\n{run.stderr}{run.stdout}")
    kernels = parse(run.stderr + run.stdout)
    for old in kept.glob(f"{name}-*.json"):
        old.unlink()
    result.write_text(json.dumps(kernels))
    return kernels


def compile_all(nvcc, kept, architectures, files, jobs):
    """(path, kernels) of all .cu files or some."""
    version = subprocess.run([nvcc, "--version"], check=True, capture_output=True,
                             text=True).stdout
    kept.mkdir(parents=True, exist_ok=True)
    paths = sorted(path for path in (TOP / "kernels").rglob("*.cu")
                   if (not files or path in files) and has_kernels(path))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda path: compiled(path, nvcc, version, kept, architectures),
                                paths))
    return list(zip(paths, results))


def measure(nvcc, kept, architectures, files, jobs):
    """Rows of the table; -1: not compiled."""
    rows = {}
    for path, kernels in compile_all(nvcc, kept, architectures, files, jobs):
        for name, by_architecture in sorted(kernels.items()):
            values = [by_architecture.get(a, [-1, 0, 0]) for a in ARCHITECTURES]
            rows[(str(path.relative_to(TOP)), name)] = [
                *(v[0] for v in values), max(v[1] for v in values), max(v[2] for v in values)]
    return rows


def compile_for(nvcc, kept, architectures, files, jobs):
    """Prints every spill, and how many kernels there are. Exit status."""
    names = ", ".join(f"sm_{a}" for a in architectures)
    compiled_files = compile_all(nvcc, kept, architectures, files, jobs)
    spills = [f"{path.relative_to(TOP)} {name}: spills {used[1]} bytes on sm_{architecture}"
              for path, kernels in compiled_files for name, by_architecture in kernels.items()
              for architecture, used in by_architecture.items() if used[1] > 0]
    for line in spills:
        print(line)
    kernels = sum(len(kernels) for _, kernels in compiled_files)
    print(f"{kernels} kernels of {len(compiled_files)} files compile for {names}, "
          f"{len(spills)} spill")
    return 1 if spills else 0


def write_table(rows):
    lines = ["\t".join(COLUMNS)]
    lines += ["\t".join([*key, *map(str, values)]) for key, values in sorted(rows.items())]
    TABLE.write_text("\n".join(lines) + "\n")


def read_table():
    rows = {}
    for line in TABLE.read_text().splitlines()[1:]:
        file, kernel, *values = line.split("\t")
        rows[(file, kernel)] = [int(value) for value in values]
    return rows


def findings(rows, table):
    """What --check says."""
    for key, values in rows.items():
        spilled = values[len(ARCHITECTURES)]
        if spilled > 0:
            yield f"{' '.join(key)}: spills {spilled} bytes"
        if key not in table:
            yield f"{' '.join(key)}: not in {TABLE.relative_to(TOP)}; run scripts/card/ptxas.py"
            continue
        for i, architecture in enumerate(ARCHITECTURES):
            if values[i] > table[key][i] + REGISTERS_MORE_MAX:
                yield (f"{' '.join(key)}: {values[i]} registers on sm_{architecture}, "
                       f"{table[key][i]} in the table")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help=".cu files (default: all)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=pathlib.Path, default=TOP / "build/ptxas",
                        help="folder for results (default: build/ptxas)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: 2)")
    parser.add_argument("--only", choices=ARCHITECTURES, help="with --check: one architecture")
    parser.add_argument("--compile-for", nargs="+", metavar="ARCH", help="such as 100 120")
    options = parser.parse_args()
    if options.only and not options.check:
        parser.error("--only is of use with --check: the table has all architectures")
    nvcc = find_nvcc()
    if nvcc is None:
        print("nvcc is not here")
        return 0
    files = {file.resolve() for file in options.files}
    if options.compile_for:
        return compile_for(nvcc, options.keep, options.compile_for, files, options.jobs)
    rows = measure(nvcc, options.keep, [options.only] if options.only else ARCHITECTURES, files,
                   options.jobs)
    if not options.check:
        others = {} if not files else {key: values for key, values in read_table().items()
                                       if TOP / key[0] not in files}
        write_table(others | rows)
        return 0
    found = list(findings(rows, read_table()))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
