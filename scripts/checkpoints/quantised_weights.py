"""FP8 and formats of 4 bits as published folders store them: values, scales, and how they are
distinguished. Needs numpy.

Which format a linear has is decided by the tensors of its name: `weight_scale_inv` (2-D, one scale
for each 128 x 128 block; 3-D for stacked experts), `weight_scale` of rank 0 or [1] (one for all),
or `weight_scale` [out, 1] (one for each row). MXFP4 is of experts: P_blocks [E, out, groups, 16],
two codes in a byte, with P_scales [E, out, groups], means P [E, in, out]. NVFP4 is P.weight with
P.weight_scale (E4M3, of 16 inputs) and P.weight_scale_2, of stacked experts P [E, in / 2, out]
with P_weight_scale [E, in / 16, out] and P_weight_scale_2; int4 is P.weight_packed (I32, 8 codes
from the low end) with P.weight_scale [out, groups] and, packed along the rows, P.weight_zero_point.
GPTQ is P.qweight (I32, eight inputs of an output in a word) with P.scales, P.qzeros (less 1) and
P.g_idx, the group of each input.
"""

import numpy

from checkpoints import checkpoint_files

block = 128
largest = 448.0
# Beside the weights: scales of activations and of the KV cache, which weight-only runs do not use.
idle_ends = (".input_scale", ".k_scale", ".v_scale")
# Named like scales of a weight, but weights themselves.
own_ends = (".per_expert_scale", ".correct_output_scale")


def e4m3_table():
    """The value of each of the 256 codes: 1 sign, 4 exponent (bias 7), 3 mantissa bits, no inf."""
    code = numpy.arange(128)
    exponent, mantissa = code >> 3, code & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    value = numpy.where(exponent == 0, mantissa / 8 * 2.0**-6, normal)
    value[127] = numpy.nan
    return numpy.concatenate([value, -value])


table = e4m3_table()


def to_e4m3(values):
    """The nearest code of each value, ties to the even code; what is too large becomes 448."""
    magnitude = numpy.minimum(numpy.abs(values), largest)
    upper = numpy.clip(numpy.searchsorted(table[:127], magnitude), 1, 126)
    below, above = magnitude - table[upper - 1], table[upper] - magnitude
    take_lower = (below < above) | ((below == above) & ((upper - 1) % 2 == 0))
    code = numpy.where(take_lower, upper - 1, upper)
    return (code + 128 * (numpy.signbit(values) & (code > 0))).astype(numpy.uint8)


def plain(array):
    """float64 of an array as checkpoint_files.read_safetensors gives it."""
    if array.dtype == numpy.uint16:
        array = checkpoint_files.from_bf16(array)
    elif array.dtype == numpy.uint8:
        return table[array]
    return array.astype(numpy.float64)


def spread(scales, shape):
    """Scales of blocks over the elements [..., out, in]."""
    wide = scales.repeat(block, -2)[..., : shape[-2], :]
    return wide.repeat(block, -1)[..., : shape[-1]]


mxfp4_group = 32
mxfp4_levels = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
mxfp4_levels = numpy.concatenate([mxfp4_levels, -mxfp4_levels])


def to_mxfp4(values):
    """[E, in, out] as blocks and scales: of 32 inputs the largest becomes 4 to 8."""
    rows = values.swapaxes(1, 2)
    groups = rows.reshape(*rows.shape[:2], -1, mxfp4_group)
    power = numpy.floor(numpy.log2(numpy.abs(groups).max(-1))) - 2
    levels = groups / 2.0 ** power[..., None]
    code = numpy.abs(levels[..., None] - mxfp4_levels).argmin(-1).astype(numpy.uint8)
    return code[..., 0::2] | code[..., 1::2] << 4, (power + 127).astype(numpy.uint8)


def from_mxfp4(blocks, scales):
    codes = numpy.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], mxfp4_group)
    groups = mxfp4_levels[codes] * 2.0 ** (scales.astype(numpy.float64) - 127)[..., None]
    return groups.reshape(*blocks.shape[:2], -1).swapaxes(1, 2)


nvfp4_group = 16


def to_nvfp4(values, whole=None):
    """[out, in] as codes, scales of 16 inputs, and the scale of all, by default the least."""
    groups = values.reshape(len(values), -1, nvfp4_group)
    largest_of = numpy.abs(groups).max(-1)
    if whole is None:
        whole = numpy.float32(largest_of.max() / mxfp4_levels.max() / largest)
    scales = to_e4m3(largest_of / mxfp4_levels.max() / whole)
    levels = groups / numpy.maximum(table[scales] * whole, 1e-30)[..., None]
    code = numpy.abs(levels[..., None] - mxfp4_levels).argmin(-1).astype(numpy.uint8)
    code = code.reshape(values.shape)
    return code[:, 0::2] | code[:, 1::2] << 4, scales, whole


def from_nvfp4(codes, scales, whole):
    levels = mxfp4_levels[numpy.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)]
    return levels * (plain(scales) * whole).repeat(nvfp4_group, 1)


def from_stacked_nvfp4(codes, scales, whole):
    """[E, in / 2, out] and scales [E, in / 16, out] as [E, in, out]."""
    rows = lambda each: each.swapaxes(1, 2).reshape(-1, each.shape[1])
    values = from_nvfp4(rows(codes), rows(scales), whole)
    return values.reshape(len(codes), codes.shape[2], -1).swapaxes(1, 2)


def packed(codes):
    """Eight codes of 4 bits in an I32, from the low end; the last one is filled up."""
    rows = numpy.pad(codes, ((0, 0), (0, -codes.shape[1] % 8))).astype(numpy.uint32)
    words = rows.reshape(len(codes), -1, 8) << numpy.arange(0, 32, 4, dtype=numpy.uint32)
    return words.sum(-1, dtype=numpy.uint32).view(numpy.int32)


def unpacked(words, count):
    shifts = numpy.arange(0, 32, 4, dtype=numpy.uint32)
    codes = words.view(numpy.uint32)[..., None] >> shifts & 15
    return codes.reshape(len(words), -1)[:, :count]


def to_int4(values, group, symmetric):
    """[out, in] as codes, scales to be rounded, and zero points by the rounded scales."""
    groups = values.reshape(len(values), -1, group)
    low, high = numpy.minimum(groups.min(-1), 0), numpy.maximum(groups.max(-1), 0)
    scales = numpy.maximum(-low, high) / 7.5 if symmetric else (high - low) / 15

    def code(scales):
        zeros = numpy.clip((-low / scales).round(), 0, 15)
        zeros = numpy.full(scales.shape, 8) if symmetric else zeros
        codes = numpy.clip((groups / scales[..., None]).round() + zeros[..., None], 0, 15)
        return codes.reshape(values.shape), zeros

    return scales, code


def from_int4(tensors, module):
    """The values of module + "_packed"."""
    scales = plain(tensors[module + "_scale"])
    rows, columns = tensors[module + "_shape"]
    zeros = tensors.get(module + "_zero_point")
    zeros = 8 if zeros is None else unpacked(numpy.ascontiguousarray(zeros.T), rows).T
    codes = unpacked(tensors[module + "_packed"], columns).astype(numpy.float64)
    group = columns // scales.shape[1]
    wide = lambda each: numpy.broadcast_to(each, scales.shape).repeat(group, 1)
    return (codes - wide(zeros)) * wide(scales)


def to_awq(codes):
    """Codes [out, in], or zero points [out, groups], as words of eight outputs."""
    eights = numpy.ascontiguousarray(codes.T).reshape(codes.shape[1], -1, 8)
    return packed(eights[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(codes.shape[1], -1))


def to_gptq(codes, zeros, scales, group_of):
    """qweight, qzeros, scales as files have them, and g_idx, of codes [out, in]."""
    turned = lambda each: numpy.ascontiguousarray(each.T)
    words = turned(packed(codes))
    return words, packed(turned(zeros - 1)), turned(scales), group_of.astype(numpy.int32)


def from_gptq(tensors, module):
    words, group_of = tensors[module + "qweight"], tensors[module + "g_idx"]
    scales = plain(tensors[module + "scales"])
    codes = unpacked(numpy.ascontiguousarray(words.T), len(group_of)).astype(numpy.float64)
    zeros = unpacked(tensors[module + "qzeros"], scales.shape[1]).astype(numpy.float64) + 1
    return (codes - zeros[group_of].T) * scales[group_of].T


def dequantised(tensors):
    """name -> float64 values; the scales are gone."""
    found = {}
    for name, array in tensors.items():
        is_scale = name.endswith(("_scale", "_scale_inv", "_scales", "_scale_2"))
        is_scale = is_scale or name.endswith(("weight_zero_point", "weight_shape"))
        if name.endswith(idle_ends) or (is_scale and not name.endswith(own_ends)):
            continue
        if name.endswith("_blocks"):
            whole = name.removesuffix("_blocks")
            found[whole] = from_mxfp4(array, tensors[whole + "_scales"])
            continue
        if name.endswith((".qzeros", ".scales", ".g_idx")):
            continue
        if name.endswith(".qweight"):
            module = name.removesuffix("qweight")
            found[module + "weight"] = from_gptq(tensors, module)
            continue
        if name.endswith("weight_packed"):
            whole = name.removesuffix("_packed")
            found[whole] = from_int4(tensors, whole)
            continue
        if name + "_weight_scale_2" in tensors:
            scales = tensors[name + "_weight_scale"], tensors[name + "_weight_scale_2"]
            found[name] = from_stacked_nvfp4(array, *scales)
            continue
        if name + "_scale_2" in tensors:
            scales = tensors[name + "_scale"], tensors[name + "_scale_2"]
            found[name] = from_nvfp4(array, *scales)
            continue
        value = plain(array)
        if name + "_scale_inv" in tensors:
            value = value * spread(plain(tensors[name + "_scale_inv"]), value.shape)
        elif name + "_scale" in tensors:
            scale = plain(tensors[name + "_scale"])
            value = value * (scale.reshape(-1, 1) if scale.size > 1 else scale.reshape(()))
        elif array.dtype == numpy.uint8:
            raise SystemExit(f"{name}: fp8 without a scale")
        found[name] = value
    return found
