"""The formulas that several parts of the float64 reference share."""

import numpy


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def silu(x):
    return x / (1 + numpy.exp(-x))


def softplus(x):
    return numpy.where(x > 20, x, numpy.log1p(numpy.exp(numpy.minimum(x, 20))))


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, weight, eps):
    return weight * x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps)


def l2_normal(x, eps=1e-6):
    """Length one: the sum of squares, not their mean, with eps inside the root."""
    return x / numpy.sqrt((x * x).sum(-1, keepdims=True) + eps)


def rope_speeds(theta, dims, scaling):
    """Radians per position of each pair; `scaling`: None, or the object of config.json that has
    rope_type "linear" or "llama3"."""
    speeds = theta ** (-2.0 * numpy.arange(dims // 2) / dims)
    if not scaling:
        return speeds
    slow = speeds / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return slow
    length = scaling["original_max_position_embeddings"]
    waves = 2 * numpy.pi / speeds
    short, long = (length / scaling[key] for key in ("high_freq_factor", "low_freq_factor"))
    share = (1 / waves - 1 / long) / (1 / short - 1 / long)
    mixed = slow + (speeds - slow) * share
    return numpy.where(waves < short, speeds, numpy.where(waves > long, slow, mixed))


def rotate(x, positions, speeds):
    """x [T, heads, hd]; of its first 2 * len(speeds) dimensions, the first half and the second form
    pairs."""
    half = len(speeds)
    dims = 2 * half
    angle = positions[:, None] * speeds
    cos, sin = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
    low, high = x[..., :half], x[..., half:dims]
    return numpy.concatenate([low * cos - high * sin, high * cos + low * sin, x[..., dims:]], -1)


def causal_conv(x, taps, window):
    """Depthwise: x [T, C], taps [C, K] (the last one meets the current token), window [K - 1, C]:
    what came before. Returns y [T, C] and the new window."""
    width = taps.shape[1]
    padded = numpy.concatenate([window, x])
    y = sum(taps[:, j] * padded[j : j + len(x)] for j in range(width))
    return y, padded[len(padded) - (width - 1) :]
