"""Kimi delta attention and attention by latents (MLA)."""

import numpy

from reference.delta import Delta
from reference.numerics import (
    causal_conv,
    rms,
    rope_speeds,
    rotate,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from reference.part import Part


class Kda(Delta):
    """A delta net whose rows of a state decay each at its own pace. Options as Delta's, as many
    key heads as value heads; rank: of what decays and the gate, a sigmoid, are made by; None: of
    the input; floor: the lowest logarithm of a decay, 0: none."""

    names = {
        **Delta.names,
        "a_a": "f_a_proj.weight",
        "a_b": "f_b_proj.weight",
        "a": "f_proj.weight",
        "z": "g_proj.weight",
        "z_a": "g_a_proj.weight",
        "z_b": "g_b_proj.weight",
        "b": "b_proj.weight",
        "norm": "o_norm.weight",
        "out": "o_proj.weight",
    }
    grouped, separate, rank, floor = False, True, None, 0.0

    def tensors(self):
        decays = self.value_heads * self.key_dim
        for role, width in self.widths():
            yield self.name[role], (width, self.hidden), "linear"
        for role, width in self.widths():
            yield self.name[role + "_conv"], (width, 1, self.taps), "linear"
        for role, width in (("a", decays), ("z", self.value_width)):
            if not self.rank:
                yield self.name[role], (width, self.hidden), "linear"
                continue
            yield self.name[role + "_a"], (self.rank, self.hidden), "linear"
            yield self.name[role + "_b"], (width, self.rank), "linear"
        yield self.name["b"], (self.value_heads, self.hidden), "linear"
        heads = (1, 1, self.value_heads, 1) if self.rank else (self.value_heads,)
        yield self.name["a_log"], heads, "a_log"
        yield self.name["dt_bias"], (decays,), "dt_bias_f32"
        yield self.name["norm"], (self.value_dim,), "norm"
        yield self.name["out"], (self.hidden, self.value_width), "linear"

    def terms(self):
        return super().terms() + ["decay_channels"] + (["decay_floor"] if self.floor else [])

    def wide(self, model, role, u):
        if not self.rank:
            return self.apply(model, role, u)
        return self.apply(model, role + "_a", u) @ self.get(model, role + "_b").T

    def recur(self, model, layer, q, k, v, beta, log_decay, memory):
        """log_decay [T, heads, Dk]."""
        s, o = memory["s"], numpy.empty_like(v)
        for t in range(len(v)):
            if not model.has("state", layer):
                s = numpy.zeros_like(s)
            if model.has("decay", layer):
                s = numpy.exp(log_decay[t])[:, :, None] * s
            known = numpy.einsum("hkv,hk->hv", s, k[t]) * model.has("correction", layer)
            s = s + k[t][:, :, None] * (beta[t][:, None] * (v[t] - known))[:, None, :]
            o[t] = numpy.einsum("hkv,hk->hv", s, q[t])
        memory["s"] = s
        return o

    def run(self, model, layer, u, memory, start):
        qkv = numpy.concatenate([self.apply(model, role, u) for role in "qkv"], -1)
        taps = numpy.concatenate([self.get(model, role + "_conv")[:, 0] for role in "qkv"])
        if not model.has("conv", layer):
            taps = taps * (numpy.arange(self.taps) == self.taps - 1)
        qkv, memory["window"] = causal_conv(qkv, taps, memory["window"])
        q, k, v = self.heads_of(model, layer, silu(qkv))
        b = self.apply(model, "b", u)
        beta = sigmoid(b) if model.has("beta", layer) else numpy.ones_like(b)
        a, z = (self.wide(model, role, u) for role in "az")
        if model.has("dt_bias", layer):
            a = a + self.get(model, "dt_bias")
        a = a.reshape(len(u), self.value_heads, self.key_dim)
        if not model.has("decay_channels", layer):
            a = a.mean(-1, keepdims=True) + numpy.zeros_like(a)
        rate = numpy.exp(self.get(model, "a_log")).reshape(-1, 1)
        log_decay = -rate * softplus(a)
        if self.floor and model.has("decay_floor", layer):
            log_decay = self.floor * sigmoid(rate * a)
        o = self.recur(model, layer, q, k, v, beta, log_decay, memory)
        weight = self.get(model, "norm") if model.has("gated_norm_weight", layer) else 1.0
        o = rms(o, weight, self.eps)
        if model.has("gate", layer):
            o = o * sigmoid(z.reshape(o.shape))
        return self.apply(model, "out", o.reshape(len(u), -1))


class Mla(Part):
    """Options: heads, plain_dim and turned_dim (of queries and keys, the latter alike for all
    heads), value_dim, latent; q_rank: None, or queries are made of q_rank normed numbers; eps;
    theta: of a rope over the turned ones, None: none, of pairs of neighbours or of halves; gated:
    every head's values times a sigmoid."""

    names = {
        "q": "q_proj.weight",
        "q_a": "q_a_proj.weight",
        "q_norm": "q_a_layernorm.weight",
        "q_b": "q_b_proj.weight",
        "kv_a": "kv_a_proj_with_mqa.weight",
        "kv_norm": "kv_a_layernorm.weight",
        "kv_b": "kv_b_proj.weight",
        "gate": "g_proj.weight",
        "o": "o_proj.weight",
    }
    q_rank, eps, theta, neighbours, gated = None, 1e-6, None, True, False

    def tensors(self):
        width = self.heads * (self.plain_dim + self.turned_dim)
        if self.q_rank:
            yield self.name["q_a"], (self.q_rank, self.hidden), "linear"
            yield self.name["q_norm"], (self.q_rank,), "norm"
            yield self.name["q_b"], (width, self.q_rank), "linear"
        else:
            yield self.name["q"], (width, self.hidden), "linear"
        yield self.name["kv_a"], (self.latent + self.turned_dim, self.hidden), "linear"
        yield self.name["kv_norm"], (self.latent,), "norm"
        both = self.plain_dim + self.value_dim
        yield self.name["kv_b"], (self.heads * both, self.latent), "linear"
        if self.gated:
            yield self.name["gate"], (self.heads, self.hidden), "linear"
        yield self.name["o"], (self.hidden, self.heads * self.value_dim), "linear"

    def terms(self):
        found = ["turned_queries"] if self.theta else []
        found += ["latent_gate"] if self.gated else []
        return found + ["past", "latent_norm", "turned_keys"]

    def turn(self, model, layer, x, positions):
        """x [T, heads, turned_dim]."""
        if not self.theta or not model.has("turned_queries", layer):
            return x
        if self.neighbours:
            x = numpy.concatenate([x[..., 0::2], x[..., 1::2]], -1)
        return rotate(x, positions, rope_speeds(self.theta, self.turned_dim, None)[0])

    def nothing(self):
        return {"rows": numpy.zeros((0, self.latent + self.turned_dim))}

    def run(self, model, layer, u, memory, start):
        low = self.apply(model, "kv_a", u)
        own, turned = low[:, : self.latent], low[:, self.latent :]
        if model.has("latent_norm", layer):
            own = rms(own, self.get(model, "kv_norm"), self.eps)
        if not model.has("turned_keys", layer):
            turned = numpy.zeros_like(turned)
        positions = start + numpy.arange(len(u))
        turned = self.turn(model, layer, turned[:, None], positions)[:, 0]
        memory["rows"] = numpy.concatenate([memory["rows"], numpy.concatenate([own, turned], -1)])
        rows = memory["rows"]
        kv = (rows[:, : self.latent] @ self.get(model, "kv_b").T).reshape(len(rows), self.heads, -1)
        k, v = kv[..., : self.plain_dim], kv[..., self.plain_dim :]
        same = numpy.repeat(rows[:, None, self.latent :], self.heads, 1)
        k = numpy.concatenate([k, same], -1)
        if self.q_rank:
            q = rms(self.apply(model, "q_a", u), self.get(model, "q_norm"), self.eps)
            q = self.apply(model, "q_b", q)
        else:
            q = self.apply(model, "q", u)
        q = q.reshape(len(u), self.heads, -1)
        turned = self.turn(model, layer, q[..., self.plain_dim :], positions)
        q = numpy.concatenate([q[..., : self.plain_dim], turned], -1)
        scores = numpy.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        keys = numpy.arange(len(rows))
        seen = keys <= positions[:, None]
        if not model.has("past", layer):
            seen = keys == positions[:, None]
        weights = softmax(numpy.where(seen, scores, -numpy.inf))
        mixed = numpy.einsum("hqk,khd->qhd", weights, v)
        if self.gated and model.has("latent_gate", layer):
            mixed = mixed * sigmoid(self.apply(model, "gate", u))[..., None]
        return self.apply(model, "o", mixed.reshape(len(u), -1))
