"""The formulas that several parts of the float64 reference share."""

import numpy


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def silu(x):
    return x / (1 + numpy.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + numpy.tanh((2 / numpy.pi) ** 0.5 * (x + 0.044715 * x**3)))


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


def yarn_speeds(theta, dims, scaling, speeds):
    """Pairs that turn often in the first context stay, the slow ones are slowed by the factor."""
    length, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    turns = [scaling.get(key) or usual for key, usual in (("beta_fast", 32), ("beta_slow", 1))]
    first, last = (
        dims * numpy.log(length / (count * 2 * numpy.pi)) / (2 * numpy.log(theta))
        for count in turns
    )
    if scaling.get("truncate", True):
        first, last = numpy.floor(first), numpy.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    last += 0.001 if first == last else 0
    slowed = numpy.clip((numpy.arange(dims // 2) - first) / (last - first), 0, 1)
    return speeds / factor * slowed + speeds * (1 - slowed)


def yarn_length(scaling):
    """Factor on rotated q and k."""
    if scaling.get("attention_factor"):
        return scaling["attention_factor"]
    scale = lambda weight: 0.1 * weight * numpy.log(max(scaling["factor"], 1)) + 1
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
    return scale(1)


def rope_speeds(theta, dims, scaling):
    """Radians per position of each pair, and a factor on what is rotated; `scaling`: None, or the
    object of config.json that has rope_type "linear", "llama3", "yarn" or "proportional"."""
    speeds = theta ** (-2.0 * numpy.arange(dims // 2) / dims)
    if not scaling:
        return speeds, 1.0
    if scaling["rope_type"] == "yarn":
        return yarn_speeds(theta, dims, scaling, speeds), yarn_length(scaling)
    if scaling["rope_type"] == "proportional":
        turning = int(scaling.get("partial_rotary_factor", 1.0) * dims // 2)
        return numpy.where(numpy.arange(dims // 2) < turning, speeds, 0.0), 1.0
    slow = speeds / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return slow, 1.0
    length = scaling["original_max_position_embeddings"]
    waves = 2 * numpy.pi / speeds
    short, long = (length / scaling[key] for key in ("high_freq_factor", "low_freq_factor"))
    between = 1 / short - 1 / long
    share = (1 / waves - 1 / long) / between if between else 0.0
    mixed = slow + (speeds - slow) * share
    mixed = numpy.where(waves < short, speeds, numpy.where(waves > long, slow, mixed))
    return mixed, 1.0


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
