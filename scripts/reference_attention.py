"""Softmax attention: grouped queries, rope or none, norms of q and k, an output gate."""

import numpy

from reference_math import rms, rope_speeds, rotate, sigmoid, softmax
from reference_part import Part


class Attention(Part):
    """Options: heads, kv_heads, head_dim; theta, rope_dims (0: no rope) and
    scaling (rope_speeds); qk_norm: None, "rms" or
    "rms_1p" (weight 1 + w), with eps; gated: q_proj holds q and gate, head by head; multiplier: the
    scale where it is not head_dim^-0.5; window: positions that a token sees, its own included, None
    for all. Factors: "in" (of the input), "k" (of the keys)."""

    names = {
        "q": "q_proj.weight",
        "k": "k_proj.weight",
        "v": "v_proj.weight",
        "o": "o_proj.weight",
        "q_norm": "q_norm.weight",
        "k_norm": "k_norm.weight",
    }
    theta, rope_dims, scaling = 10000.0, 0, None
    qk_norm, gated, multiplier, eps, window = None, False, None, None, None

    def tensors(self):
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield self.name["q"], (width * (2 if self.gated else 1), self.hidden), "linear"
        yield self.name["k"], (kv_width, self.hidden), "linear"
        yield self.name["v"], (kv_width, self.hidden), "linear"
        yield self.name["o"], (self.hidden, width), "linear"
        if self.qk_norm:
            kind = "norm_1p" if self.qk_norm == "rms_1p" else "norm"
            yield self.name["q_norm"], (self.head_dim,), kind
            yield self.name["k_norm"], (self.head_dim,), kind

    def terms(self):
        found = ["past"]
        if self.rope_dims:
            found += ["rope"] if self.rope_dims == self.head_dim else ["rope", "partial_rope"]
        found += ["rope_scaling"] if self.scaling else []
        found += ["qk_norm", "qk_norm_weights"] if self.qk_norm else []
        found += ["window"] if self.window else []
        return found + (["output_gate"] if self.gated else [])

    def nothing(self):
        none = numpy.zeros((0, self.kv_heads, self.head_dim))
        return {"k": none, "v": none}

    def normal(self, model, layer, role, x):
        if not self.qk_norm or not model.has("qk_norm", layer):
            return x
        weight = self.get(model, role) + (1.0 if self.qk_norm == "rms_1p" else 0.0)
        return rms(x, weight if model.has("qk_norm_weights", layer) else 1.0, self.eps)

    def run(self, model, layer, u, memory, start):
        u = u * self.factor(model, layer, "in")
        q = self.apply(model, "q", u).reshape(len(u), self.heads, -1)
        q, gate = q[..., : self.head_dim], q[..., self.head_dim :]
        k = self.apply(model, "k", u).reshape(-1, self.kv_heads, self.head_dim)
        k = k * self.factor(model, layer, "k")
        v = self.apply(model, "v", u).reshape(-1, self.kv_heads, self.head_dim)
        q, k = self.normal(model, layer, "q_norm", q), self.normal(model, layer, "k_norm", k)
        positions = start + numpy.arange(len(u))
        if self.rope_dims and model.has("rope", layer):
            dims = self.rope_dims if model.has("partial_rope", layer) else self.head_dim
            scaling = self.scaling if model.has("rope_scaling", layer) else None
            speeds = rope_speeds(self.theta, dims, scaling)
            q, k = (rotate(x, positions, speeds) for x in (q, k))
        memory["k"] = k = numpy.concatenate([memory["k"], k])
        memory["v"] = v = numpy.concatenate([memory["v"], v])
        k = k.repeat(self.heads // self.kv_heads, 1)
        v = v.repeat(self.heads // self.kv_heads, 1)
        own = self.multiplier is not None and model.has("attention_multiplier")
        scale = self.multiplier if own else self.head_dim**-0.5
        scores = numpy.einsum("qhd,khd->hqk", q, k) * scale
        keys = numpy.arange(len(k))
        seen = keys <= positions[:, None]
        if self.window and model.has("window", layer):
            seen &= keys > positions[:, None] - self.window
        if not model.has("past", layer):
            seen = keys == positions[:, None]
        mixed = numpy.einsum("hqk,khd->qhd", softmax(numpy.where(seen, scores, -numpy.inf)), v)
        if self.gated and model.has("output_gate", layer):
            mixed = mixed * sigmoid(gate)
        return self.apply(model, "o", mixed.reshape(len(u), -1))
