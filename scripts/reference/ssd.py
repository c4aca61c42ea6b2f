"""Mamba-2: projection, causal convolution, the SSD recurrence token by token, gated norm."""

import numpy

from reference.numerics import causal_conv, rms, silu, softplus
from reference.part import Part


class Ssd(Part):
    """Options: heads, width (of a head), groups (of B and C, and of the gated norm), states, taps,
    conv_bias, limits (of dt), eps; norm: None (y is gated alone), "gate_first" or "norm_first".
    Factors: "in" (of the input), "z", "x", "b", "c", "dt" (of what is projected)."""

    names = {
        "in": "in_proj.weight",
        "conv": "conv1d.weight",
        "conv_bias": "conv1d.bias",
        "a_log": "A_log",
        "skip": "D",
        "dt_bias": "dt_bias",
        "norm": "norm.weight",
        "out": "out_proj.weight",
    }

    norm = "gate_first"

    @property
    def inner(self):
        """Channels: heads x their width, whatever the `expand` of a config says."""
        return self.heads * self.width

    @property
    def conv_channels(self):
        return self.inner + 2 * self.groups * self.states

    def tensors(self):
        rows = self.inner + self.conv_channels + self.heads
        yield self.name["in"], (rows, self.hidden), "linear"
        yield self.name["conv"], (self.conv_channels, 1, self.taps), "linear"
        if self.conv_bias:
            yield self.name["conv_bias"], (self.conv_channels,), "bias"
        yield self.name["a_log"], (self.heads,), "a_log"
        yield self.name["skip"], (self.heads,), "skip"
        yield self.name["dt_bias"], (self.heads,), "dt_bias"
        if self.norm:
            yield self.name["norm"], (self.inner,), "norm"
        yield self.name["out"], (self.hidden, self.inner), "linear"

    def terms(self):
        found = ["state", "decay", "conv", "skip", "dt_bias", "gate"]
        found += ["gated_norm_weight"] if self.norm else []
        found += ["gated_norm_order"] if self.norm == "norm_first" else []
        found += ["conv_bias"] if self.conv_bias else []
        found += ["dt_min"] if self.limits[0] > 0 else []
        found += ["dt_max"] if self.limits[1] < numpy.inf else []
        found += ["gated_norm_groups"] if self.norm and self.groups > 1 else []
        return found + (["ssd_groups"] if self.groups > 1 else [])

    def nothing(self):
        window = numpy.zeros((self.taps - 1, self.conv_channels))
        return {"window": window, "s": numpy.zeros((self.heads, self.width, self.states))}

    def convolve(self, model, layer, xbc, memory):
        taps = self.get(model, "conv")[:, 0]
        if not model.has("conv", layer):
            taps = taps * (numpy.arange(self.taps) == self.taps - 1)
        out, memory["window"] = causal_conv(xbc, taps, memory["window"])
        if self.conv_bias and model.has("conv_bias", layer):
            out = out + self.get(model, "conv_bias")
        return silu(out)

    def recur(self, model, layer, x, b, c, dt, memory):
        """x [T, heads, P], b and c [T, heads, N], dt [T, heads] -> y [T, heads, P]."""
        a = -numpy.exp(self.get(model, "a_log"))
        skip = self.get(model, "skip") * model.has("skip", layer)
        s = memory["s"]
        y = numpy.empty_like(x)
        for t in range(len(x)):
            if not model.has("state", layer):
                s = numpy.zeros_like(s)
            if model.has("decay", layer):
                s = numpy.exp(dt[t] * a)[:, None, None] * s
            s = s + (dt[t][:, None] * x[t])[:, :, None] * b[t][:, None, :]
            y[t] = (s @ c[t][:, :, None])[:, :, 0] + skip[:, None] * x[t]
        memory["s"] = s
        return y

    def segment_factors(self, model, layer):
        widths = {"z": self.inner, "x": self.inner, "b": self.groups * self.states}
        widths.update(c=self.groups * self.states, dt=self.heads)
        each = [self.factor(model, layer, place) for place in widths]
        return numpy.repeat(each, list(widths.values()))

    def gated(self, model, layer, y, z):
        """y after its gate and norm, in whichever order."""
        gate = silu(z) if model.has("gate", layer) else 1.0
        if not self.norm:
            return y * gate
        gate_first = (self.norm == "gate_first") == model.has("gated_norm_order", layer)
        if gate_first:
            y = y * gate
        groups = self.groups if model.has("gated_norm_groups", layer) else 1
        y = rms(y.reshape(len(y), groups, -1), 1.0, self.eps).reshape(len(y), self.inner)
        if model.has("gated_norm_weight", layer):
            y = y * self.get(model, "norm")
        return y if gate_first else y * gate

    def run(self, model, layer, u, memory, start):
        projected = self.apply(model, "in", u * self.factor(model, layer, "in"))
        projected = projected * self.segment_factors(model, layer)
        z, xbc, dt = numpy.split(projected, [self.inner, self.inner + self.conv_channels], -1)
        xbc = self.convolve(model, layer, xbc, memory)
        x, b, c = numpy.split(xbc, [self.inner, self.inner + self.groups * self.states], -1)
        x = x.reshape(-1, self.heads, self.width)
        group = numpy.arange(self.heads) // (self.heads // self.groups)
        group = group * model.has("ssd_groups", layer)
        b = b.reshape(-1, self.groups, self.states)[:, group]
        c = c.reshape(-1, self.groups, self.states)[:, group]
        if model.has("dt_bias", layer):
            dt = dt + self.get(model, "dt_bias")
        low = self.limits[0] if model.has("dt_min", layer) else 0.0
        high = self.limits[1] if model.has("dt_max", layer) else numpy.inf
        dt = numpy.clip(softplus(dt), low, high)
        y = self.recur(model, layer, x, b, c, dt, memory).reshape(len(u), self.inner)
        y = self.gated(model, layer, y, z)
        return self.apply(model, "out", y)
