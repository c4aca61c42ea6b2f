"""Mamba-1: projection, causal convolution, the selective scan token by token, a gate."""

import numpy

from reference.numerics import causal_conv, rms, silu, softplus
from reference.part import Part


class S6(Part):
    """Options: channels, states, rank (of dt), taps, conv_bias; norms: None, "plain" or "weighted"
    (of dt, B and C), with eps."""

    names = {
        "in": "in_proj.weight",
        "conv": "conv1d.weight",
        "conv_bias": "conv1d.bias",
        "select": "x_proj.weight",
        "dt": "dt_proj.weight",
        "dt_bias": "dt_proj.bias",
        "a_log": "A_log",
        "skip": "D",
        "out": "out_proj.weight",
        "dt_norm": "dt_layernorm.weight",
        "b_norm": "b_layernorm.weight",
        "c_norm": "c_layernorm.weight",
    }

    norms = None

    def tensors(self):
        yield self.name["in"], (2 * self.channels, self.hidden), "linear"
        yield self.name["conv"], (self.channels, 1, self.taps), "linear"
        if self.conv_bias:
            yield self.name["conv_bias"], (self.channels,), "bias"
        yield self.name["select"], (self.rank + 2 * self.states, self.channels), "linear"
        yield self.name["dt"], (self.channels, self.rank), "linear"
        yield self.name["dt_bias"], (self.channels,), "dt_bias"
        yield self.name["a_log"], (self.channels, self.states), "a_log"
        yield self.name["skip"], (self.channels,), "skip"
        if self.norms == "weighted":
            yield self.name["dt_norm"], (self.rank,), "norm"
            yield self.name["b_norm"], (self.states,), "norm"
            yield self.name["c_norm"], (self.states,), "norm"
        yield self.name["out"], (self.hidden, self.channels), "linear"

    def terms(self):
        found = ["state", "decay", "conv", "skip", "dt_bias", "gate"]
        found += ["conv_bias"] if self.conv_bias else []
        found += ["selection_norms"] if self.norms else []
        return found + (["selection_norm_weights"] if self.norms == "weighted" else [])

    def nothing(self):
        window = numpy.zeros((self.taps - 1, self.channels))
        return {"window": window, "s": numpy.zeros((self.channels, self.states))}

    def convolve(self, model, layer, x, memory):
        taps = self.get(model, "conv")[:, 0]
        if not model.has("conv", layer):
            taps = taps * (numpy.arange(self.taps) == self.taps - 1)
        out, memory["window"] = causal_conv(x, taps, memory["window"])
        if self.conv_bias and model.has("conv_bias", layer):
            out = out + self.get(model, "conv_bias")
        return silu(out)

    def normed(self, model, layer, x, role):
        if not self.norms or not model.has("selection_norms", layer):
            return x
        is_weighted = self.norms == "weighted" and model.has("selection_norm_weights", layer)
        return rms(x, self.get(model, role) if is_weighted else 1.0, self.eps)

    def scan(self, model, layer, x, dt, b, c, memory):
        """x and dt [T, channels], b and c [T, N] -> y [T, channels]."""
        a = -numpy.exp(self.get(model, "a_log")) * model.has("decay", layer)
        s = memory["s"]
        y = numpy.empty_like(x)
        for t in range(len(x)):
            if not model.has("state", layer):
                s = numpy.zeros_like(s)
            s = numpy.exp(dt[t][:, None] * a) * s + (dt[t] * x[t])[:, None] * b[t]
            y[t] = s @ c[t]
        memory["s"] = s
        return y + x * self.get(model, "skip") * model.has("skip", layer)

    def run(self, model, layer, u, memory, start):
        x, z = numpy.split(self.apply(model, "in", u), 2, -1)
        x = self.convolve(model, layer, x, memory)
        ends = [self.rank, self.rank + self.states]
        each = numpy.split(self.apply(model, "select", x), ends, -1)
        roles = ("dt_norm", "b_norm", "c_norm")
        dt, b, c = (self.normed(model, layer, part, role) for part, role in zip(each, roles))
        dt = self.apply(model, "dt", dt)
        if model.has("dt_bias", layer):
            dt = dt + self.get(model, "dt_bias")
        y = self.scan(model, layer, x, softplus(dt), b, c, memory)
        return self.apply(model, "out", y * (silu(z) if model.has("gate", layer) else 1.0))
