"""Folders of the granitemoehybrid family: which tensors they hold, random values for them, files.

Needs numpy only. Shared by make_golden.py (tiny fixtures) and make_random_model.py (real shapes).
bf16 values are uint16 arrays that hold the upper half of the float32 bits.
"""

import dataclasses
import json
import mmap
import os
import re
import statistics

import numpy

shard_limit = 4 * 10**9
write_piece = 1 << 24


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Sizes that config.json implies; d_inner is heads x head width, whatever mamba_expand says."""

    hidden: int
    vocab: int
    layer_types: tuple
    heads: int
    kv_heads: int
    head_dim: int
    d_inner: int
    ssd_heads: int
    ssd_width: int
    groups: int
    d_state: int
    taps: int
    conv_bias: bool
    experts: int
    top_k: int
    expert_width: int
    shared_width: int
    tied: bool

    @property
    def conv_channels(self):
        return self.d_inner + 2 * self.groups * self.d_state


def geometry(config):
    hidden = config["hidden_size"]
    ssd_heads = config["mamba_n_heads"]
    ssd_width = config["mamba_d_head"]
    if ssd_width == "auto":
        ssd_width = config["mamba_expand"] * hidden // ssd_heads
    same = {"linear_attention": "mamba", "full_attention": "attention"}
    heads = config["num_attention_heads"]
    return Geometry(
        hidden=hidden,
        vocab=config["vocab_size"],
        layer_types=tuple(same.get(name, name) for name in config["layer_types"]),
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        d_inner=ssd_heads * ssd_width,
        ssd_heads=ssd_heads,
        ssd_width=ssd_width,
        groups=config.get("mamba_n_groups", 1),
        d_state=config["mamba_d_state"],
        taps=config.get("mamba_d_conv", 4),
        conv_bias=config.get("mamba_conv_bias", True),
        experts=config.get("num_local_experts") or 0,
        top_k=config.get("num_experts_per_tok") or 0,
        expert_width=config["intermediate_size"],
        shared_width=config["shared_intermediate_size"],
        tied=config.get("tie_word_embeddings", False),
    )


def mixer_tensors(g, prefix, kind):
    if kind == "mamba":
        rows = g.d_inner + g.conv_channels + g.ssd_heads
        yield prefix + "mamba.in_proj.weight", (rows, g.hidden), "linear"
        yield prefix + "mamba.conv1d.weight", (g.conv_channels, 1, g.taps), "linear"
        if g.conv_bias:
            yield prefix + "mamba.conv1d.bias", (g.conv_channels,), "bias"
        yield prefix + "mamba.A_log", (g.ssd_heads,), "a_log"
        yield prefix + "mamba.D", (g.ssd_heads,), "skip"
        yield prefix + "mamba.dt_bias", (g.ssd_heads,), "dt_bias"
        yield prefix + "mamba.norm.weight", (g.d_inner,), "norm"
        yield prefix + "mamba.out_proj.weight", (g.hidden, g.d_inner), "linear"
    elif kind == "attention":
        width = g.heads * g.head_dim
        kv_width = g.kv_heads * g.head_dim
        yield prefix + "self_attn.q_proj.weight", (width, g.hidden), "linear"
        yield prefix + "self_attn.k_proj.weight", (kv_width, g.hidden), "linear"
        yield prefix + "self_attn.v_proj.weight", (kv_width, g.hidden), "linear"
        yield prefix + "self_attn.o_proj.weight", (g.hidden, width), "linear"
    else:
        raise ValueError(f"layer_types: mamba or attention expected, found {kind!r}")


def ffn_tensors(g, prefix):
    if g.experts:
        moe = prefix + "block_sparse_moe."
        wide = (g.experts, 2 * g.expert_width, g.hidden)
        yield moe + "input_linear.weight", wide, "linear"
        yield moe + "output_linear.weight", (g.experts, g.hidden, g.expert_width), "linear"
        yield moe + "router.layer.weight", (g.experts, g.hidden), "linear"
    yield prefix + "shared_mlp.input_linear.weight", (2 * g.shared_width, g.hidden), "linear"
    yield prefix + "shared_mlp.output_linear.weight", (g.hidden, g.shared_width), "linear"


def tensor_table(g):
    """(name, shape, kind) of every tensor, in file order; kinds are those of draw()."""
    yield "model.embed_tokens.weight", (g.vocab, g.hidden), "linear"
    for layer, kind in enumerate(g.layer_types):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (g.hidden,), "norm"
        yield from mixer_tensors(g, prefix, kind)
        yield prefix + "post_attention_layernorm.weight", (g.hidden,), "norm"
        yield from ffn_tensors(g, prefix)
    yield "model.norm.weight", (g.hidden,), "norm"
    if not g.tied:
        yield "lm_head.weight", (g.vocab, g.hidden), "linear"


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


def draw(rng, shape, kind):
    """bf16 values of one tensor. Variance 1/fan_in keeps every activation near 1."""
    count = int(numpy.prod(shape))
    ranks = rng.integers(0, 65536, count, dtype=numpy.uint16)
    share = (numpy.arange(65536) + 0.5) / 65536
    if kind == "linear":
        values = quantiles / numpy.sqrt(numpy.float32(shape[-1]))
    elif kind == "norm":
        values = 0.7 + 0.6 * share
    elif kind == "bias":
        values = 0.3 * quantiles
    elif kind == "skip":
        values = quantiles
    elif kind == "a_log":
        values = numpy.log(0.5) + share * numpy.log(8 / 0.5)
    elif kind == "dt_bias":
        step = numpy.exp(numpy.log(0.05) + share * numpy.log(1 / 0.05))
        values = numpy.log(numpy.expm1(step))
    else:
        raise ValueError(f"no such kind of tensor: {kind}")
    return to_bf16(values)[ranks].reshape(shape)


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


def write_weights(folder, config, seed, limit=shard_limit):
    """Random bf16 weights for config into folder, in one file or in shards with an index."""
    table = list(tensor_table(geometry(config)))
    rng = numpy.random.Generator(numpy.random.PCG64(seed))
    sizes = [2 * int(numpy.prod(shape)) for _, shape, _ in table]
    shards = plan_shards(sizes, limit)
    where = {}
    for number, shard in enumerate(shards):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        entries = []
        for index in shard:
            name, shape, kind = table[index]
            produce = lambda shape=shape, kind=kind: draw(rng, shape, kind)
            entries.append((name, "BF16", shape, sizes[index], produce))
            where[name] = file
        write_safetensors(os.path.join(folder, file), entries)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(sizes)}, "weight_map": where}
        write_json(os.path.join(folder, "model.safetensors.index.json"), index)
    return sum(sizes)


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
    """name -> float32 or uint16 (bf16) array, views into the mapped file."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    kinds = {"BF16": numpy.uint16, "F32": numpy.float32}
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
