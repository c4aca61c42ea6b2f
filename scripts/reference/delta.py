"""The gated delta net (GDN), its recurrence token by token."""

import numpy

from reference.numerics import causal_conv, l2_normal, rms, sigmoid, silu, softplus
from reference.part import Part


class Delta(Part):
    """Options: key_heads, value_heads, key_dim, value_dim, taps, eps; grouped: the rows of two
    projections are ordered key head by key head (q, k, v, z and b, a of its value heads), else
    there are four projections, each in plain order; separate: of these that of q, k and v is
    three, and so is the convolution; beta_scale: beta times this."""

    separate, beta_scale = False, 1.0

    names = {
        "qkvz": "in_proj_qkvz.weight",
        "ba": "in_proj_ba.weight",
        "qkv": "in_proj_qkv.weight",
        **{role: role + "_proj.weight" for role in "qkv"},
        **{role + "_conv": role + "_conv1d.weight" for role in "qkv"},
        "z": "in_proj_z.weight",
        "b": "in_proj_b.weight",
        "a": "in_proj_a.weight",
        "conv": "conv1d.weight",
        "a_log": "A_log",
        "dt_bias": "dt_bias",
        "norm": "norm.weight",
        "out": "out_proj.weight",
    }

    @property
    def key_width(self):
        return self.key_heads * self.key_dim

    @property
    def value_width(self):
        return self.value_heads * self.value_dim

    @property
    def conv_channels(self):
        return 2 * self.key_width + self.value_width

    def widths(self):
        return zip("qkv", (self.key_width, self.key_width, self.value_width))

    def tensors(self):
        if self.grouped:
            rows = self.conv_channels + self.value_width
            yield self.name["qkvz"], (rows, self.hidden), "linear"
            yield self.name["ba"], (2 * self.value_heads, self.hidden), "linear"
        else:
            if self.separate:
                for role, width in self.widths():
                    yield self.name[role], (width, self.hidden), "linear"
            else:
                yield self.name["qkv"], (self.conv_channels, self.hidden), "linear"
            yield self.name["z"], (self.value_width, self.hidden), "linear"
            yield self.name["b"], (self.value_heads, self.hidden), "linear"
            yield self.name["a"], (self.value_heads, self.hidden), "linear"
        if self.separate:
            for role, width in self.widths():
                yield self.name[role + "_conv"], (width, 1, self.taps), "linear"
        else:
            yield self.name["conv"], (self.conv_channels, 1, self.taps), "linear"
        yield self.name["a_log"], (self.value_heads,), "a_log"
        yield self.name["dt_bias"], (self.value_heads,), "dt_bias"
        yield self.name["norm"], (self.value_dim,), "norm"
        yield self.name["out"], (self.hidden, self.value_width), "linear"

    def terms(self):
        found = ["state", "decay", "conv", "dt_bias", "gate", "gated_norm_weight", "beta"]
        found += ["correction", "l2_norm"] + ["beta_scale"] * (self.beta_scale != 1.0)
        return found + (["key_heads"] if 1 < self.key_heads < self.value_heads else [])

    @property
    def inputs(self):
        return "qkv" if self.separate else ["qkv"]

    def nothing(self):
        window = numpy.zeros((self.taps - 1, self.conv_channels))
        s = numpy.zeros((self.value_heads, self.key_dim, self.value_dim))
        return {"window": window, "s": s}

    def project(self, model, u):
        """qkv [T, conv_channels], z [T, value heads, Dv], b and a [T, value heads]."""
        if not self.grouped:
            qkv = numpy.concatenate([self.apply(model, role, u) for role in self.inputs], -1)
            z, b, a = (self.apply(model, role, u) for role in ("z", "b", "a"))
            return qkv, z.reshape(len(u), self.value_heads, -1), b, a
        ratio = self.value_heads // self.key_heads
        qkvz = self.apply(model, "qkvz", u).reshape(len(u), self.key_heads, -1)
        ends = numpy.cumsum([self.key_dim, self.key_dim, ratio * self.value_dim])
        q, k, v, z = numpy.split(qkvz, ends, -1)
        ba = self.apply(model, "ba", u).reshape(len(u), self.key_heads, 2 * ratio)
        b, a = (x.reshape(len(u), -1) for x in numpy.split(ba, 2, -1))
        qkv = numpy.concatenate([x.reshape(len(u), -1) for x in (q, k, v)], -1)
        return qkv, z.reshape(len(u), self.value_heads, -1), b, a

    def heads_of(self, model, layer, qkv):
        """q and k [T, value heads, Dk], v [T, value heads, Dv]; q is scaled by Dk^-0.5."""
        q, k, v = numpy.split(qkv, [self.key_width, 2 * self.key_width], -1)
        head = numpy.arange(self.value_heads)
        has_order = model.has("key_heads", layer)
        ratio = self.value_heads // self.key_heads
        head = head // ratio if has_order else head % self.key_heads
        q, k = (x.reshape(len(x), self.key_heads, self.key_dim)[:, head] for x in (q, k))
        if model.has("l2_norm", layer):
            q, k = l2_normal(q), l2_normal(k)
        return q * self.key_dim**-0.5, k, v.reshape(len(v), self.value_heads, self.value_dim)

    def recur(self, model, layer, q, k, v, beta, log_decay, memory):
        """beta and log_decay [T, value heads] -> o [T, value heads, Dv]; S is [Dk, Dv] per head."""
        s = memory["s"]
        o = numpy.empty_like(v)
        for t in range(len(v)):
            if not model.has("state", layer):
                s = numpy.zeros_like(s)
            if model.has("decay", layer):
                s = numpy.exp(log_decay[t])[:, None, None] * s
            known = numpy.einsum("hkv,hk->hv", s, k[t]) * model.has("correction", layer)
            delta = beta[t][:, None] * (v[t] - known)
            s = s + k[t][:, :, None] * delta[:, None, :]
            o[t] = numpy.einsum("hkv,hk->hv", s, q[t])
        memory["s"] = s
        return o

    def run(self, model, layer, u, memory, start):
        qkv, z, b, a = self.project(model, u)
        convs = [role + "_conv" for role in "qkv"] if self.separate else ["conv"]
        taps = numpy.concatenate([self.get(model, role)[:, 0] for role in convs])
        if not model.has("conv", layer):
            taps = taps * (numpy.arange(self.taps) == self.taps - 1)
        qkv, memory["window"] = causal_conv(qkv, taps, memory["window"])
        q, k, v = self.heads_of(model, layer, silu(qkv))
        beta = sigmoid(b) if model.has("beta", layer) else numpy.ones_like(b)
        if model.has("beta_scale", layer):
            beta = beta * self.beta_scale
        if model.has("dt_bias", layer):
            a = a + self.get(model, "dt_bias")
        log_decay = -numpy.exp(self.get(model, "a_log")) * softplus(a)
        o = self.recur(model, layer, q, k, v, beta, log_decay, memory)
        weight = self.get(model, "norm") if model.has("gated_norm_weight", layer) else 1.0
        o = rms(o, weight, self.eps)
        if model.has("gate", layer):
            o = o * silu(z)
        return self.apply(model, "out", o.reshape(len(u), -1))
