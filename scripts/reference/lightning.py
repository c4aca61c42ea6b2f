"""Lightning attention: linear attention whose heads forget at a constant pace each."""

import numpy

from reference.numerics import rms, rope_speeds, rotate, sigmoid, silu
from reference.part import Part


class Lightning(Part):
    """Options: heads, head_dim; pace, of which head h has 2^(-8 (h + 1) / heads); eps; rope_dims,
    with theta, 0: none: q and k have norms then and no silu, q is times head_dim^-0.5, and rows of
    qkv are those of all heads' q, k and v; groups: of the norm of y."""

    names = {
        "qkv": "qkv_proj.weight",
        "gate": "output_gate.weight",
        "norm": "norm.weight",
        "out": "out_proj.weight",
    }
    eps, rope_dims, groups = 1e-6, 0, 1

    @property
    def inner(self):
        return self.heads * self.head_dim

    def tensors(self):
        yield self.name["qkv"], (3 * self.inner, self.hidden), "linear"
        yield self.name["gate"], (self.inner, self.hidden), "linear"
        for role in ("q_norm", "k_norm") if self.rope_dims else ():
            yield self.name[role], (self.head_dim,), "norm"
        yield self.name["norm"], (self.inner,), "norm"
        yield self.name["out"], (self.hidden, self.inner), "linear"

    def terms(self):
        found = ["state", "decay", "gate", "gated_norm_weight"]
        if self.groups > 1:
            found.append("gated_norm_groups")
        if not self.rope_dims:
            return found + ["lightning_silu"]
        return found + ["qk_norm", "qk_norm_weights", "rope", "partial_rope"]

    def inputs(self, model, layer, u, start):
        """q, k and v, [T, heads, head_dim] each."""
        qkv = self.apply(model, "qkv", u)
        if not self.rope_dims:
            if model.has("lightning_silu", layer):
                qkv = silu(qkv)
            return numpy.split(qkv.reshape(len(u), self.heads, -1), 3, -1)
        q, k, v = numpy.split(qkv.reshape(len(u), 3 * self.heads, -1), 3, 1)
        return self.turn(model, layer, "q", q, start), self.turn(model, layer, "k", k, start), v

    def turn(self, model, layer, role, x, start):
        if model.has("qk_norm", layer):
            has_weights = model.has("qk_norm_weights", layer)
            x = rms(x, self.get(model, role + "_norm") if has_weights else 1.0, self.eps)
        if model.has("rope", layer):
            dims = self.rope_dims if model.has("partial_rope", layer) else self.head_dim
            speeds = rope_speeds(self.theta, dims, None)[0]
            x = rotate(x, start + numpy.arange(len(x)), speeds)
        return x * self.head_dim**-0.5 if role == "q" else x

    def nothing(self):
        return {"s": numpy.zeros((self.heads, self.head_dim, self.head_dim))}

    def run(self, model, layer, u, memory, start):
        q, k, v = self.inputs(model, layer, u, start)
        rates = self.pace * 2.0 ** (-8 * numpy.arange(1, self.heads + 1) / self.heads)
        keep = numpy.exp(-rates) if model.has("decay", layer) else numpy.ones(self.heads)
        s, y = memory["s"], numpy.empty_like(v)
        for t in range(len(u)):
            if not model.has("state", layer):
                s = numpy.zeros_like(s)
            s = keep[:, None, None] * s + k[t][:, :, None] * v[t][:, None, :]
            y[t] = numpy.einsum("hkv,hk->hv", s, q[t])
        memory["s"] = s
        weight = self.get(model, "norm") if model.has("gated_norm_weight", layer) else 1.0
        groups = self.groups if model.has("gated_norm_groups", layer) else 1
        y = weight * rms(y.reshape(len(u), groups, -1), 1.0, self.eps).reshape(len(u), -1)
        if model.has("gate", layer):
            y = y * sigmoid(self.apply(model, "gate", u))
        return self.apply(model, "out", y)
