#!/usr/bin/env python3
"""tests/golden/gguf_blocks.json: what libgguf makes of blocks of every type that hyb reads.

    pip install libgguf gguf xxhash
    scripts/golden/make_gguf_blocks.py > tests/golden/gguf_blocks.json

Blocks are bytes of a generator that the test has, too (tests/kernels/linear/gguf_blocks_test.cpp);
of the values there are a checksum, with any NaN as 0x7fc00000, and the first block's first ones.
"""

import json
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import libgguf
import numpy
import xxhash

BLOCKS = 500
TYPES = {"Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
         "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "TQ1_0": (34, 256, 54),
         "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
         "Q1_0": (41, 128, 18)}


def random_bytes(seed, count):
    """A linear congruential generator of 32 bits: its top bytes."""
    state, out = seed, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        out.append(state >> 24)
    return bytes(out)


def golden(type_id, elements, block_bytes):
    raw = numpy.frombuffer(random_bytes(type_id, BLOCKS * block_bytes), numpy.uint8)
    values = libgguf.dequantize_rows(raw.reshape(BLOCKS, block_bytes), type_id)
    bits = numpy.ascontiguousarray(values, numpy.float32).reshape(-1).view(numpy.uint32).copy()
    bits[numpy.isnan(bits.view(numpy.float32))] = 0x7fc00000
    return {"type": type_id, "elements": elements, "bytes": block_bytes,
            "first": [f"{word:08x}" for word in bits[:4]],
            "xxh3": f"{xxhash.xxh3_64_intdigest(bits.tobytes()):016x}"}


rows = {name: golden(*row) for name, row in TYPES.items()}
print("{" + ",\n ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
      + "}")
