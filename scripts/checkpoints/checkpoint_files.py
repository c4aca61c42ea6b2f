"""Files of a model folder: safetensors, shards, JSON; and random values for the tensors in them.

Needs numpy only. Shared by make_golden.py (tiny fixtures) and make_random_model.py (real shapes).
bf16 values are uint16 arrays that hold the upper half of the float32 bits; F16 values are float16
arrays; F8_E4M3 and U8 values are uint8 arrays (quantised_weights.py decodes them).
"""

import json
import mmap
import os
import re
import statistics

import numpy

shard_limit = 4 * 10**9
write_piece = 1 << 24
sizes = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}


def to_bf16(values):
    """Round float32 to the nearest bf16, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def from_bf16(halves):
    return (halves.astype(numpy.uint32) << 16).view(numpy.float32)


def normal_quantiles():
    """65536 equally likely values of the standard normal: drawing is then one table look-up."""
    law = statistics.NormalDist()
    half = numpy.array([law.inv_cdf((i + 0.5) / 65536) for i in range(32768, 65536)])
    return numpy.concatenate([-half[::-1], half]).astype(numpy.float32)


quantiles = normal_quantiles()


def values_of(kind, fan_in):
    """The 65536 equally likely values of a kind of tensor. Kinds that end in _f32 stay float32."""
    share = (numpy.arange(65536) + 0.5) / 65536
    kind = kind.removesuffix("_f32")
    if kind == "linear":  # variance 1/fan_in keeps every activation near 1
        return quantiles / numpy.sqrt(numpy.float32(fan_in))
    if kind == "embedding":  # of a tied head: a token that does not always follow itself
        return 0.3 * quantiles / numpy.sqrt(numpy.float32(fan_in))
    if kind == "norm":
        return 0.7 + 0.6 * share
    if kind == "norm_1p":  # for norms that multiply with 1 + w
        return 0.6 * share - 0.3
    if kind == "bias":
        return 0.3 * quantiles
    if kind == "skip":
        return quantiles
    if kind == "select":  # added to router scores of 0 .. 1
        return 0.5 * share
    if kind == "a_log":
        return numpy.log(0.5) + share * numpy.log(8 / 0.5)
    if kind == "dt_bias":
        step = numpy.exp(numpy.log(0.05) + share * numpy.log(1 / 0.05))
        return numpy.log(numpy.expm1(step))
    raise ValueError(f"no such kind of tensor: {kind}")


def draw(rng, shape, kind, dtype):
    """Values of one tensor: uint16 (bf16), float16 or float32."""
    ranks = rng.integers(0, 65536, int(numpy.prod(shape)), dtype=numpy.uint16)
    values = values_of(kind, shape[-1])
    if dtype == "BF16":
        values = to_bf16(values)
    else:
        values = values.astype(numpy.float16 if dtype == "F16" else numpy.float32)
    return values[ranks].reshape(shape)


def plan_shards(sizes, limit):
    """Indices of the tensors of each shard: in order, a new shard where the limit is passed."""
    shards, room = [], 0
    for index, size in enumerate(sizes):
        if not shards or room < size:
            shards.append([])
            room = limit
        shards[-1].append(index)
        room -= size
    return shards


def write_safetensors(path, entries):
    """entries: (name, dtype name, shape, byte count, function that gives the array). The file
    takes its name when it is whole, so a reader of an older one keeps what it has mapped."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, size, _ in entries:
        end = offset + size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".partial", "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, _, _, size, produce in entries:
            data = memoryview(numpy.ascontiguousarray(produce())).cast("B")
            if data.nbytes != size:
                raise ValueError(f"{name}: {data.nbytes} bytes where {size} are declared")
            for start in range(0, size, write_piece):
                file.write(data[start : start + write_piece])
    os.replace(path + ".partial", path)


def drawn(table, seed, half="BF16"):
    """Entries for write_tensors of a table of (name, shape, kind); to be written in their order.
    Kinds that end in _f32 are F32, all others `half`."""
    rng = numpy.random.Generator(numpy.random.PCG64(seed))
    entries = []
    for name, shape, kind in table:
        dtype = "F32" if kind.endswith("_f32") else half
        size = sizes[dtype] * int(numpy.prod(shape))
        produce = lambda shape=shape, kind=kind, dtype=dtype: draw(rng, shape, kind, dtype)
        entries.append((name, dtype, shape, size, produce))
    return entries


def write_tensors(folder, entries, limit=shard_limit):
    """Entries as write_safetensors takes them, into one file or into shards with an index."""
    shards = plan_shards([entry[3] for entry in entries], limit)
    where = {}
    for number, shard in enumerate(shards):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(os.path.join(folder, file), [entries[index] for index in shard])
        where.update({entries[index][0]: file for index in shard})
    total = sum(entry[3] for entry in entries)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        write_json(os.path.join(folder, "model.safetensors.index.json"), index)
    return total


def write_json(path, value):
    """Indented, but a list of integers stays on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[\d,\s]+\]", lambda found: " ".join(found[0].split()), text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_safetensors(path):
    """name -> float32, uint16 (bf16), float16, uint8 or int64 array, views into the mapped file."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    kinds = {
        "BF16": numpy.uint16,
        "F16": numpy.float16,
        "F32": numpy.float32,
        "I32": numpy.int32,
        "I64": numpy.int64,
        "F8_E4M3": numpy.uint8,
        "U8": numpy.uint8,
        "BOOL": numpy.uint8,
        "I64": numpy.int64,
    }
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = kinds[entry["dtype"]]
        count = (end - begin) // numpy.dtype(kind).itemsize
        flat = numpy.frombuffer(data, kind, count, start + begin)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_weights(folder):
    """All tensors of a model folder, one file or sharded."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(folder, "model.safetensors"))
    tensors = {}
    for file in sorted(set(read_json(index)["weight_map"].values())):
        tensors.update(read_safetensors(os.path.join(folder, file)))
    return tensors
