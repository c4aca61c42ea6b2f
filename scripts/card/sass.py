#!/usr/bin/env python3
"""Instructions of every CUDA kernel on sm_90, in total and in its hottest loop.

    scripts/card/sass.py [--nvdisasm PROGRAM]    # writes kernels/cuda/sass.tsv
    scripts/card/sass.py FILE...                 # the rows of some files, which may be gone by now
    scripts/card/sass.py --check                 # exit status 1 and the files whose sources have
                                            # changed since; needs neither nvcc nor nvdisasm

nvdisasm is part of the CUDA toolkit, and of PyPI's nvidia-cuda-nvdisasm. What was compiled is kept
in build/ptxas as by ptxas.py, the hash of a file and all that it includes is the table's `sources`.

The hottest loop is, of those that hold tensor instructions but no smaller loop with some, the one
with the most; where no loop has any, of the innermost the one that streams the most bytes, by
asynchronous copies if any does; where none loads, the longest. A kernel without loops has its whole
body there.

instructions  of the kernel, and tensor_all: of these, matrix instructions
loop          of one turn of its hottest loop, and tensor: of these, matrix instructions
streamed      bytes that a warp loads from global memory in a turn: by asynchronous copies where the
              loop has some, else by loads of single bytes (codes), else by loads of constant data
              (weights), else by all loads
shared        cycles of shared memory of a warp in a turn, without bank conflicts
side          instructions of one turn of another loop, the one that loads the most bytes, and
side_bytes    those: where a block reads the rows of x before the weights; zeros: there is none
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from card.ptxas import compile_all, demangled, find_nvcc, hash_of, sources

TOP = pathlib.Path(__file__).resolve().parents[2]
TABLE = TOP / "kernels/cuda/sass.tsv"
COUNTS = ["instructions", "tensor_all", "loop", "tensor", "streamed", "shared", "side",
          "side_bytes"]
LANES = 32


def instructions_of(lines):
    """[(address, opcode, operands)] and {label: address} of a function's text."""
    found, labels, waiting = [], {}, []
    for line in lines:
        if label := re.match(r"(\.L_x_\d+):", line):
            waiting.append(label.group(1))
        elif one := re.match(r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+ )?\s*([\w.]+)(.*)", line):
            address = int(one.group(1), 16)
            labels.update((name, address) for name in waiting)
            waiting = []
            found.append((address, one.group(2), one.group(3)))
    return found, labels


def width_of(opcode):
    """Bytes of a lane."""
    if re.search(r"\.[US]8", opcode):
        return 1
    if re.search(r"\.[US]16", opcode):
        return 2
    bits = re.search(r"\.(64|128)(?:\.|$)", opcode)
    return int(bits.group(1)) // 8 if bits else 4


def shared_cycles(opcode):
    """Of a warp, without bank conflicts: 128 bytes a cycle."""
    if matrices := re.match(r"(?:LD|ST)SM.*\.([124])$", opcode):
        return int(matrices.group(1))
    return max(1, width_of(opcode) // 4) if opcode.startswith(("LDS", "STS")) else 1


class Loop:
    """What one turn of a loop, or of a whole body, does."""

    def __init__(self, part):
        names = [opcode.split(".")[0] for _, opcode, _ in part]
        copies, narrow, constant, loads = 0, 0, 0, 0
        for (_, opcode, _), name in zip(part, names):
            width = width_of(opcode)
            copies += width if name == "LDGSTS" else 0
            loads += width if name == "LDG" else 0
            narrow += width if name == "LDG" and width == 1 else 0
            constant += width if name == "LDG" and ".CONSTANT" in opcode else 0
        self.instructions = len(part)
        self.tensor = sum(name in ("HMMA", "QMMA", "IMMA", "HGMMA") for name in names)
        self.copies, self.loads = copies * LANES, loads * LANES
        self.streamed = (copies or narrow or constant or loads) * LANES
        self.shared = sum(shared_cycles(opcode) for (_, opcode, _), name in zip(part, names)
                          if name in ("LDS", "STS", "LDSM", "STSM", "ATOMS", "SHFL"))

    def heat(self):
        return self.tensor, self.copies, self.loads, self.instructions


def innermost(loops):
    """Loops that hold no other of them."""
    return [(b, e) for b, e in loops
            if not any((b, e) != (c, d) and b <= c and d <= e for c, d in loops)]


def values_of(code, labels):
    """A value for each of COUNTS."""
    loops = set()
    for address, opcode, operands in code:
        target = re.search(r"\((\.L_x_\d+)\)", operands)
        begin = labels.get(target.group(1)) if target and opcode == "BRA" else None
        if begin is not None and begin < address:
            loops.add((begin, address))
    whole = Loop(code)
    found = {(b, e): Loop([one for one in code if b <= one[0] <= e]) for b, e in loops}
    candidates = innermost([one for one in loops if found[one].tensor > 0] or loops)
    hottest = max(candidates, key=lambda one: found[one].heat(), default=None)
    hot = found[hottest] if hottest else whole
    others = [found[b, e] for b, e in innermost(loops)
              if hottest and (e < hottest[0] or b > hottest[1])]
    side = max((one for one in others if one.streamed > 0), key=lambda one: one.streamed,
               default=None)
    return [whole.instructions, whole.tensor, hot.instructions, hot.tensor, hot.streamed,
            hot.shared, side.instructions if side else 0, side.streamed if side else 0]


def kernels_of(text):
    """{mangled name: lines} of what nvdisasm printed."""
    found, current = {}, None
    for line in text.splitlines():
        if section := re.match(r"//-+ \.text\.(\S+)", line):
            current = found.setdefault(section.group(1), [])
        elif re.match(r"//-+ \.", line):
            current = None
        elif current is not None:
            current.append(line)
    return found


def counted(text):
    """{kernel: values of COUNTS} of what nvdisasm printed."""
    found = kernels_of(text)
    names = demangled(sorted(found)) if found else {}
    rows = {}
    for mangled, lines in found.items():
        code, labels = instructions_of(lines)
        code = [one for one in code if one[1] != "NOP"]
        rows[names[mangled]] = values_of(code, labels)
    return rows


def read_table(path=TABLE):
    """{kernel: {name: count}}, and {file: hash of its sources}."""
    header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
    rows = {line[1]: dict(zip(header[3:], map(int, line[3:]))) for line in lines}
    return rows, {line[0]: line[2] for line in lines}


def stale():
    """Files whose rows are of other sources than today's."""
    hashes = read_table()[1]
    today = {str(path.relative_to(TOP)): hash_of(path) for path in sources()}
    return sorted({*hashes} ^ {*today}
                  | {name for name, source in today.items() if source != hashes.get(name)})


def rows_of(path, code, nvdisasm):
    """Rows of one file."""
    run = subprocess.run([nvdisasm, "-c", code], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"nvdisasm does not read {code}: {run.stderr}")
    return [[str(path.relative_to(TOP)), kernel, hash_of(path), *map(str, values)]
            for kernel, values in sorted(counted(run.stdout).items())]


def write_table(nvcc, nvdisasm, kept, jobs, files):
    """Rows of all files, or of some and what the table has of the others."""
    rows = []
    if files:
        rows = [line.split("\t") for line in TABLE.read_text().splitlines()[1:]]
        rows = [row for row in rows if TOP / row[0] not in files]
    for path, _, code in compile_all(nvcc, kept, ["90"], sources(files), jobs):
        rows += rows_of(path, code, nvdisasm)
    rows.sort(key=lambda row: row[0])
    lines = ["\t".join(row) for row in [["file", "kernel", "sources", *COUNTS], *rows]]
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help=".cu files (default: all)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"))
    parser.add_argument("--keep", type=pathlib.Path, default=TOP / "build/ptxas",
                        help="folder for results (default: build/ptxas)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.check:
        found = stale()
        for name in found:
            print(f"{name}: not as in kernels/cuda/sass.tsv; run scripts/card/sass.py")
        return 1 if found else 0
    nvcc = find_nvcc()
    if nvcc is None or options.nvdisasm is None:
        print("nvcc or nvdisasm is not here")
        return 2
    write_table(nvcc, options.nvdisasm, options.keep, options.jobs,
                {file.resolve() for file in options.files})
    return 0


if __name__ == "__main__":
    sys.exit(main())
