"""Lightning attention: linear attention whose heads forget at a constant pace each."""

import numpy

from reference_math import rms, sigmoid, silu
from reference_part import Part


class Lightning(Part):
    """Options: heads, head_dim; pace, of which head h has 2^(-8 (h + 1) / heads); eps."""

    names = {
        "qkv": "qkv_proj.weight",
        "gate": "output_gate.weight",
        "norm": "norm.weight",
        "out": "out_proj.weight",
    }
    eps = 1e-6

    @property
    def inner(self):
        return self.heads * self.head_dim

    def tensors(self):
        yield self.name["qkv"], (3 * self.inner, self.hidden), "linear"
        yield self.name["gate"], (self.inner, self.hidden), "linear"
        yield self.name["norm"], (self.inner,), "norm"
        yield self.name["out"], (self.hidden, self.inner), "linear"

    def terms(self):
        return ["state", "decay", "lightning_silu", "gate", "gated_norm_weight"]

    def nothing(self):
        return {"s": numpy.zeros((self.heads, self.head_dim, self.head_dim))}

    def run(self, model, layer, u, memory, start):
        qkv = self.apply(model, "qkv", u)
        if model.has("lightning_silu", layer):
            qkv = silu(qkv)
        q, k, v = numpy.split(qkv.reshape(len(u), self.heads, -1), 3, -1)
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
        y = rms(y.reshape(len(u), -1), weight, self.eps)
        if model.has("gate", layer):
            y = y * sigmoid(self.apply(model, "gate", u))
        return self.apply(model, "out", y)
