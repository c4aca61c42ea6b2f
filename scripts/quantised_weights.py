"""FP8 and MXFP4 as published folders store them: values, scales, and how they are distinguished.
Needs numpy.

Which format a linear has is decided by the tensors of its name: `weight_scale_inv` (2-D, one scale
for each 128 x 128 block; 3-D for stacked experts), `weight_scale` of rank 0 or [1] (one for all),
or `weight_scale` [out, 1] (one for each row). MXFP4 is of experts: P_blocks [E, out, groups, 16],
two codes in a byte, with P_scales [E, out, groups], means P [E, in, out].
"""

import numpy

import checkpoint_files

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


def dequantised(tensors):
    """name -> float64 values; the scales are gone."""
    found = {}
    for name, array in tensors.items():
        is_scale = name.endswith(("_scale", "_scale_inv", "_scales"))
        if name.endswith(idle_ends) or (is_scale and not name.endswith(own_ends)):
            continue
        if name.endswith("_blocks"):
            whole = name.removesuffix("_blocks")
            found[whole] = from_mxfp4(array, tensors[whole + "_scales"])
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
