"""FP8 and MXFP4 in golden fixtures: which linears are stored so, how, and what the folder says.

Magnitudes are made to differ between blocks, rows and tensors, or a scale in the wrong place would
hardly show.
"""

import dataclasses
import os
import zlib

import numpy

from checkpoints import checkpoint_files, quantised_weights as fp8

never = ("embed", "lm_head", "conv1d", "conv.conv", "norm")
never += (".gate.weight", "shared_expert_gate", "mtp.fc")


@dataclasses.dataclass(frozen=True)
class Scheme:
    """kind: "block", "tensor", "channel", "mxfp4" of experts in one tensor, "int4", "gptq" with
    groups in an order that the linears of a module share but for `apart`, or "nvfp4" with the
    linears of `eights` in FP8 (one_unit: and a scale_2 that a module's linears share, as a file
    of experts in one tensor needs it); taken: parts of names that are quantised though most
    keep them; asymmetric, channels: of int4, parts of names that have zero points, or a scale
    for a row; kept: parts of names that stay bf16; scale_dtype: BF16 or F32; scale_shape: of a
    tensor's one scale; files: name -> JSON; config: what config.json gets as
    quantization_config; beside: more tensors for a quantised linear; kv: k_scale, v_scale.
    """

    kind: str
    config: dict
    kept: tuple = ()
    taken: tuple = ()
    eights: tuple = ()
    asymmetric: tuple = ()
    channels: tuple = ()
    apart: tuple = ()
    one_unit: bool = False
    scale_dtype: str = "F32"
    scale_shape: tuple = ()
    input_scales: bool = False
    kv_scales: bool = False
    files: dict = dataclasses.field(default_factory=dict)

    def takes(self, name, shape):
        if self.kind == "mxfp4":
            return name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        if len(shape) < 2 or any(
            part in name for part in (*never, *self.kept) if part not in self.taken
        ):
            return False
        return len(shape) == 2 or "experts" in name


def rounded_scale(scale, dtype):
    """The scale as it is stored, and its value."""
    if dtype == "BF16":
        halves = checkpoint_files.to_bf16(scale)
        return halves, fp8.plain(halves)
    stored = scale.astype(numpy.float32)
    return stored, stored.astype(numpy.float64)


def tiles(shape):
    """Numbers of blocks of the last two dimensions."""
    return (*shape[:-2], -(-shape[-2] // fp8.block), -(-shape[-1] // fp8.block))


def pack(values, scheme, rng):
    """Codes [same shape] and scales as stored."""
    shape = values.shape
    if scheme.kind == "block":
        of = lambda scales: fp8.spread(scales, shape)
        scales = numpy.zeros(tiles(shape))
        uneven = values * of(2.0 ** rng.uniform(-1, 1, scales.shape))
        for i in range(scales.shape[-2]):
            for j in range(scales.shape[-1]):
                rows = slice(i * fp8.block, (i + 1) * fp8.block)
                columns = slice(j * fp8.block, (j + 1) * fp8.block)
                scales[..., i, j] = numpy.abs(uneven[..., rows, columns]).max((-2, -1))
    elif scheme.kind == "channel":
        of = lambda scales: scales
        uneven = values * 2.0 ** rng.uniform(-1, 1, (shape[0], 1))
        scales = numpy.abs(uneven).max(1, keepdims=True)
    else:
        of = lambda scales: scales.reshape(())
        uneven = values * 2.0 ** rng.uniform(-1, 1)
        scales = numpy.abs(uneven).max().reshape(scheme.scale_shape)
    stored, scales = rounded_scale(scales / fp8.largest, scheme.scale_dtype)
    return fp8.to_e4m3(uneven / of(scales)), stored


int4_group = 32


def int4_entries(name, values, scheme, rng):
    has = lambda parts: any(part in name for part in parts)
    group = values.shape[1] if has(scheme.channels) else int4_group
    groups = (len(values), values.shape[1] // group)
    uneven = values * (2.0 ** rng.uniform(-1, 1, groups)).repeat(group, 1)
    symmetric = not has(scheme.asymmetric)
    scales, code = fp8.to_int4(uneven, group, symmetric)
    stored, scales = rounded_scale(scales, "BF16")
    codes, zeros = code(scales)
    yield entry(name + "_packed", "I32", fp8.packed(codes))
    yield entry(name + "_scale", "BF16", stored)
    yield entry(name + "_shape", "I64", numpy.array(values.shape, numpy.int64))
    if not symmetric:
        words = numpy.ascontiguousarray(fp8.packed(numpy.ascontiguousarray(zeros.T)).T)
        yield entry(name + "_zero_point", "I32", words)


def gptq_entries(name, values, scheme, rng):
    """Zero points are 1 to 15: the files have no code for one less than 0."""
    module = name.removesuffix("weight")
    is_apart = any(part in name for part in scheme.apart)
    order = numpy.random.Generator(
        numpy.random.PCG64(zlib.crc32(name.encode()) if is_apart else module_seed(name))
    ).permutation(values.shape[1])
    groups = (len(values), values.shape[1] // int4_group)
    uneven = values[:, order] * (2.0 ** rng.uniform(-1, 1, groups)).repeat(int4_group, 1)
    scales, code = fp8.to_int4(uneven, int4_group, False)
    stored = scales.astype(numpy.float16)
    codes, zeros = code(stored.astype(numpy.float64))
    back = numpy.argsort(order)
    words = fp8.to_gptq(codes[:, back], numpy.maximum(zeros, 1), stored, back // int4_group)
    for end, dtype, array in zip(
        ("qweight", "qzeros", "scales", "g_idx"), ("I32", "I32", "F16", "I32"), words
    ):
        yield entry(module + end, dtype, array)


def module_seed(name):
    return zlib.crc32(name.rsplit(".", 2)[0].encode())


def stacked_nvfp4_entries(name, values, rng):
    """Experts [E, in, out] as ModelOpt writes them: packed along the inputs."""
    experts, columns, rows = values.shape
    flat = values.swapaxes(1, 2).reshape(-1, columns)
    uneven = flat * (2.0 ** rng.uniform(-1, 1, (len(flat), columns // fp8.nvfp4_group))).repeat(
        fp8.nvfp4_group, 1
    )
    codes, scales, whole = fp8.to_nvfp4(uneven)
    turned = lambda each: numpy.ascontiguousarray(
        each.reshape(experts, rows, -1).swapaxes(1, 2)
    )
    yield entry(name, "U8", turned(codes))
    yield entry(name + "_weight_scale", "F8_E4M3", turned(scales))
    yield entry(name + "_weight_scale_2", "F32", numpy.array(whole, numpy.float32))
    yield entry(name + "_input_scale", "F32", numpy.array(0.05, numpy.float32))


def nvfp4_entries(name, values, scheme, rng):
    if values.ndim == 3:
        yield from stacked_nvfp4_entries(name, values, rng)
        return
    groups = (len(values), values.shape[1] // fp8.nvfp4_group)
    uneven = values * (2.0 ** rng.uniform(-1, 1, groups)).repeat(fp8.nvfp4_group, 1)
    unit = numpy.float32(3e-4 * (1 + module_seed(name) % 64 / 64)) if scheme.one_unit else None
    codes, scales, whole = fp8.to_nvfp4(uneven, unit)
    yield entry(name, "U8", codes)
    yield entry(name + "_scale", "F8_E4M3", scales)
    yield entry(name + "_scale_2", "F32", numpy.array(whole, numpy.float32))


def entry(name, dtype, array):
    return name, dtype, array.shape, array.nbytes, lambda: array


def quantised(entries, scheme):
    """The entries (checkpoint_files.drawn) with the chosen linears in FP8 and their scales."""
    rng = numpy.random.Generator(numpy.random.PCG64(len(entries)))
    found = []
    for name, dtype, shape, _, produce in entries:
        array = produce()
        if not scheme.takes(name, shape):
            found.append(entry(name, dtype, array))
            continue
        if scheme.kind == "mxfp4":
            values = fp8.plain(array)
            groups = (shape[0], shape[1] // fp8.mxfp4_group, shape[2])
            uneven = (2.0 ** rng.uniform(-2, 2, groups)).repeat(fp8.mxfp4_group, 1)
            for end, codes in zip(("_blocks", "_scales"), fp8.to_mxfp4(values * uneven)):
                found.append(entry(name + end, "U8", codes))
            continue
        if scheme.kind == "int4":
            found.extend(int4_entries(name, fp8.plain(array), scheme, rng))
            continue
        if scheme.kind == "gptq":
            found.extend(gptq_entries(name, fp8.plain(array), scheme, rng))
            continue
        if scheme.kind == "nvfp4" and not any(part in name for part in scheme.eights):
            found.extend(nvfp4_entries(name, fp8.plain(array), scheme, rng))
            continue
        codes, scales = pack(fp8.plain(array), scheme, rng)
        end = "_scale_inv" if scheme.kind == "block" else "_scale"
        found.append(entry(name, "F8_E4M3", codes))
        found.append(entry(name + end, scheme.scale_dtype, scales))
        if scheme.input_scales:
            idle = numpy.array(rng.uniform(0.01, 0.1), numpy.float32)
            found.append(entry(name.removesuffix("weight") + "input_scale", "F32", idle))
    if scheme.kv_scales:
        for name, *_ in entries:
            for letter in "kv":
                if name.endswith(f".{letter}_proj.weight"):
                    idle = numpy.array(rng.uniform(0.01, 0.1), numpy.float32)
                    at = name.removesuffix("weight") + letter + "_scale"
                    found.append(entry(at, "F32", idle))
    return found


def write_settings(folder, scheme):
    for name, value in scheme.files.items():
        checkpoint_files.write_json(os.path.join(folder, name), value)


def with_level_scales(tensors):
    """The same tensors, each scale replaced by the mean of all in one tensor, or, where
    a tensor has one only, of all tensors: what the logits move by shows that scales matter."""
    found = dict(tensors)
    for name, value in tensors.items():
        if name.endswith("_scales"):
            found[name] = numpy.full(value.shape, round(value.mean()), numpy.uint8)
    ends = ("weight_scale", "_scale_inv", ".scales")
    scales = {name: fp8.plain(x) for name, x in tensors.items() if name.endswith(ends)}
    singles = [value.item() for value in scales.values() if value.size == 1]
    for name, value in scales.items():
        mean = value.mean() if value.size > 1 else numpy.mean(singles)
        found[name] = numpy.full(value.shape, mean, numpy.float32)
    return found
