"""Softmax attention: grouped queries, rope or none, norms of q and k, an output gate."""

import numpy

from reference.numerics import rms, rope_speeds, rotate, sigmoid, softmax
from reference.part import Part


class Attention(Part):
    """Options: heads, kv_heads, head_dim; theta, rope_dims (0: no rope) and scaling (rope_speeds);
    qk_norm: None, "rms" or "rms_1p" (weight 1 + w), with eps; gated: q_proj holds q and gate,
    head by head; head_gate: one gate per head, from a matrix of its own; multiplier: the
    scale where it is not head_dim^-0.5; whole_norm: qk_norm is of all heads of q, or of k,
    together; window: positions that a token sees, its own
    included, None for all; chunk: None, or keys before the last multiple of it are not seen;
    sinks: one more score per head, whose value is zero; score_cap: None, or scores are cap *
    tanh(score / cap); value_norm: v is normalised, without a weight; keys_are_values: v is k
    before norm and rope; kv_of: the layer whose keys and values it reads, None for its own;
    biases: of q, k, v and o, or "qkv"; query_beta, query_period, query_offset: the query at
    position p is multiplied by 1 + beta log(1 + floor((p + offset) / period)); neighbours: the
    dims that rotate together are neighbours, not halves; late_norm: q and k are normalised after
    that, without a weight. Factors: "in" (of the input), "k" (of the keys)."""

    names = {
        "q": "q_proj.weight",
        "k": "k_proj.weight",
        "v": "v_proj.weight",
        "o": "o_proj.weight",
        "q_norm": "q_norm.weight",
        "k_norm": "k_norm.weight",
        "gate": "gate_proj.weight",
        "sinks": "sinks",
        "q_bias": "q_proj.bias",
        "k_bias": "k_proj.bias",
        "v_bias": "v_proj.bias",
        "o_bias": "o_proj.bias",
    }
    theta, rope_dims, scaling = 10000.0, 0, None
    qk_norm, gated, multiplier, eps, window = None, False, None, None, None
    sinks, score_cap, value_norm, keys_are_values, kv_of = False, None, False, False, None
    biases, head_gate = False, False
    query_beta, query_period, query_offset = 0.0, 1, 0
    chunk, neighbours, late_norm, whole_norm = None, False, False, False

    def tensors(self):
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield self.name["q"], (width * (2 if self.gated else 1), self.hidden), "linear"
        if self.kv_of is None:
            yield self.name["k"], (kv_width, self.hidden), "linear"
        if self.kv_of is None and not self.keys_are_values:
            yield self.name["v"], (kv_width, self.hidden), "linear"
        yield self.name["o"], (self.hidden, width), "linear"
        if self.qk_norm:
            kind = "norm_1p" if self.qk_norm == "rms_1p" else "norm"
            yield self.name["q_norm"], (width if self.whole_norm else self.head_dim,), kind
            if self.kv_of is None:
                yield self.name["k_norm"], (kv_width if self.whole_norm else self.head_dim,), kind
        if self.head_gate:
            yield self.name["gate"], (self.heads, self.hidden), "linear"
        if self.sinks:
            yield self.name["sinks"], (self.heads,), "skip"
        if self.biases:
            yield self.name["q_bias"], (width,), "bias"
            yield self.name["k_bias"], (kv_width,), "bias"
            yield self.name["v_bias"], (kv_width,), "bias"
        if self.biases is True:
            yield self.name["o_bias"], (self.hidden,), "bias"

    def terms(self):
        found = ["past"]
        if self.rope_dims:
            found += ["rope"] if self.rope_dims == self.head_dim else ["rope", "partial_rope"]
        found += ["rope_scaling"] if self.scaling else []
        found += ["qk_norm", "qk_norm_weights"] if self.qk_norm else []
        found += ["whole_norm"] if self.whole_norm else []
        found += ["window"] if self.window else []
        found += ["chunk"] if self.chunk else []
        found += ["late_norm"] if self.late_norm else []
        found += ["value_norm"] if self.value_norm and self.kv_of is None else []
        found += ["sinks"] if self.sinks else []
        found += ["score_cap"] if self.score_cap else []
        found += ["query_scale"] if self.query_beta else []
        found += ["attention_bias"] if self.biases else []
        return found + (["output_gate"] if self.gated or self.head_gate else [])

    def nothing(self):
        none = numpy.zeros((0, self.kv_heads, self.head_dim))
        return {"k": none, "v": none}

    def normal(self, model, layer, role, x):
        if not self.qk_norm or not model.has("qk_norm", layer):
            return x
        weight = self.get(model, role) + (1.0 if self.qk_norm == "rms_1p" else 0.0)
        weight = weight if model.has("qk_norm_weights", layer) else 1.0
        if self.whole_norm and model.has("whole_norm", layer):
            return rms(x.reshape(len(x), -1), weight, self.eps).reshape(x.shape)
        return rms(x, weight.reshape(-1, x.shape[2]) if self.whole_norm else weight, self.eps)

    def project(self, model, layer, role, x):
        y = self.apply(model, role, x)
        has_bias = self.biases is True or (self.biases and role != "o")
        if has_bias and model.has("attention_bias", layer):
            y = y + self.get(model, role + "_bias")
        return y

    def turned(self, model, layer, role, x, positions):
        """q or k with its norm and rope."""
        x = self.normal(model, layer, role, x)
        if not self.rope_dims or not model.has("rope", layer):
            return x
        dims = self.rope_dims if model.has("partial_rope", layer) else self.head_dim
        scaling = self.scaling if model.has("rope_scaling", layer) else None
        speeds, length = rope_speeds(self.theta, dims, scaling)
        if not self.neighbours:
            x = rotate(x, positions, speeds)
            return numpy.concatenate([x[..., :dims] * length, x[..., dims:]], -1)
        halves = numpy.concatenate([x[..., 0::2], x[..., 1::2]], -1)
        halves = numpy.split(rotate(halves, positions, speeds) * length, 2, -1)
        x = numpy.stack(halves, -1).reshape(x.shape)
        if self.late_norm and model.has("late_norm", layer):
            x = rms(x, 1.0, self.eps)
        return x

    def keep(self, model, layer, u, memory, positions):
        k = self.project(model, layer, "k", u).reshape(-1, self.kv_heads, self.head_dim)
        k = k * self.factor(model, layer, "k")
        v = k
        if not self.keys_are_values:
            v = self.project(model, layer, "v", u).reshape(-1, self.kv_heads, self.head_dim)
        if self.value_norm and model.has("value_norm", layer):
            v = rms(v, 1.0, self.eps)
        k = self.turned(model, layer, "k_norm", k, positions)
        memory["k"] = numpy.concatenate([memory["k"], k])
        memory["v"] = numpy.concatenate([memory["v"], v])

    def run(self, model, layer, u, memory, start):
        u = u * self.factor(model, layer, "in")
        q = self.project(model, layer, "q", u).reshape(len(u), self.heads, -1)
        q, gate = q[..., : self.head_dim], q[..., self.head_dim :]
        if self.head_gate:
            gate = self.apply(model, "gate", u)[..., None]
        positions = start + numpy.arange(len(u))
        q = self.turned(model, layer, "q_norm", q, positions)
        if self.query_beta and model.has("query_scale", layer):
            periods = (positions + self.query_offset) // self.query_period
            grown = 1.0 + self.query_beta * numpy.log(1.0 + periods)
            q = q * grown[:, None, None]
        if self.kv_of is None:
            self.keep(model, layer, u, memory, positions)
        k, v = memory["k"], memory["v"]
        k = k.repeat(self.heads // self.kv_heads, 1)
        v = v.repeat(self.heads // self.kv_heads, 1)
        own = self.multiplier is not None and model.has("attention_multiplier")
        scale = self.multiplier if own else self.head_dim**-0.5
        scores = numpy.einsum("qhd,khd->hqk", q, k) * scale
        keys = numpy.arange(len(k))
        seen = keys <= positions[:, None]
        if self.window and model.has("window", layer):
            seen &= keys > positions[:, None] - self.window
        if self.chunk and model.has("chunk", layer):
            seen &= keys >= positions[:, None] // self.chunk * self.chunk
        if not model.has("past", layer):
            seen = keys == positions[:, None]
        if self.score_cap and model.has("score_cap", layer):
            scores = self.score_cap * numpy.tanh(scores / self.score_cap)
        scores = numpy.where(seen, scores, -numpy.inf)
        if self.sinks and model.has("sinks", layer):
            sinks = self.get(model, "sinks")[:, None, None] + numpy.zeros((*scores.shape[:2], 1))
            scores = numpy.concatenate([scores, sinks], -1)
        mixed = numpy.einsum("hqk,khd->qhd", softmax(scores)[..., : len(k)], v)
        if (self.gated or self.head_gate) and model.has("output_gate", layer):
            mixed = mixed * sigmoid(gate)
        return self.project(model, layer, "o", mixed.reshape(len(u), -1))
