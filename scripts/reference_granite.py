#!/usr/bin/env python3
"""granitemoehybrid in float64: an oracle written from the formulas, with a switch for every term.

Slow and plain on purpose: the recurrence runs token by token, nothing is chunked or fused. A term
that is switched off shows how much the logits depend on it (see `terms`). Needs numpy only.
"""

import argparse

import numpy

import granite_checkpoint as checkpoint

# term -> what switching it off means. Where a layer is given, only that layer loses the term.
terms = {
    "state": "the recurrent state is zero before every token",
    "decay": "the recurrent state never decays",
    "conv": "all taps but the current token's are zero",
    "conv_bias": "the bias of the convolution is zero",
    "skip": "D is zero",
    "dt_bias": "the bias of dt is zero",
    "gate": "silu(z) is one",
    "gated_norm_weight": "the weight of the gated norm is one",
    "gated_norm_groups": "the gated norm takes all channels as one group",
    "ssd_groups": "every head reads B and C of group 0",
    "past": "attention sees the current token only",
    "rope": "q and k are not rotated",
    "embedding_multiplier": "is one",
    "attention_multiplier": "is head_dim^-0.5",
    "residual_multiplier": "is one",
    "logits_scaling": "is one",
    "router_weights": "every chosen expert has the same weight",
    "router_choice": "the experts with the smallest logits are chosen",
    "experts": "the experts give zero",
    "shared_mlp": "the shared MLP gives zero",
    "norm_weights": "the weights of both norms of the layer are one",
}


def silu(x):
    return x / (1 + numpy.exp(-x))


def softplus(x):
    return numpy.where(x > 20, x, numpy.log1p(numpy.exp(numpy.minimum(x, 20))))


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, weight, eps):
    return weight * x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rotate(x, positions, theta):
    """x [T, heads, hd]; dimensions i and i + hd/2 form a pair."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-2.0 * numpy.arange(half) / x.shape[-1])
    cos, sin = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
    low, high = x[..., :half], x[..., half:]
    return numpy.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


class Memory:
    """What one sequence remembers: per layer K and V, or the window of the convolution and S."""

    def __init__(self, model):
        g = model.shape
        self.length = 0
        self.layers = []
        for kind in g.layer_types:
            if kind == "attention":
                none = numpy.zeros((0, g.kv_heads, g.head_dim))
                self.layers.append({"k": none, "v": none})
            else:
                window = numpy.zeros((g.taps - 1, g.conv_channels))
                s = numpy.zeros((g.ssd_heads, g.ssd_width, g.d_state))
                self.layers.append({"window": window, "s": s})


class Model:
    def __init__(self, config, tensors, off=()):
        """tensors: name -> array (uint16 means bf16); off: terms, or (term, layer) pairs."""
        self.config = config
        self.shape = checkpoint.geometry(config)
        self.off = set(off)
        self.eps = config["rms_norm_eps"]
        self.rope = config.get("position_embedding_type") == "rope"
        self.router_gap = numpy.inf
        self.weights = {}
        for name, value in tensors.items():
            value = checkpoint.from_bf16(value) if value.dtype == numpy.uint16 else value
            self.weights[name] = value.astype(numpy.float64)

    def without(self, *off):
        """The same weights with some terms switched off."""
        other = object.__new__(Model)
        other.__dict__.update(self.__dict__, off=set(off), router_gap=numpy.inf)
        return other

    def has(self, term, layer=None):
        return term not in self.off and (term, layer) not in self.off

    def weight(self, layer, name):
        return self.weights[f"model.layers.{layer}.{name}.weight"]

    def multiplier(self, name, neutral=1.0):
        return float(self.config.get(name, 1.0)) if self.has(name) else neutral

    def norm(self, layer, name, x):
        weight = self.weight(layer, name) if self.has("norm_weights", layer) else 1.0
        return rms(x, weight, self.eps)

    def forward(self, tokens, memory=None):
        """Logits [T, vocab] and the residual stream [layers + 1, T, hidden] of the next tokens."""
        memory = memory or Memory(self)
        embedding = self.weights["model.embed_tokens.weight"]
        h = embedding[numpy.asarray(tokens)] * self.multiplier("embedding_multiplier")
        scale = self.multiplier("residual_multiplier")
        stream = [h]
        for layer, kind in enumerate(self.shape.layer_types):
            mixer = self.attention if kind == "attention" else self.mamba
            u = self.norm(layer, "input_layernorm", h)
            h = h + scale * mixer(layer, u, memory.layers[layer], memory.length)
            u = self.norm(layer, "post_attention_layernorm", h)
            h = h + scale * self.ffn(layer, u)
            stream.append(h)
        memory.length += len(tokens)
        final = rms(h, self.weights["model.norm.weight"], self.eps)
        head = embedding if self.shape.tied else self.weights["lm_head.weight"]
        return final @ head.T / self.multiplier("logits_scaling"), numpy.stack(stream)

    def attention(self, layer, u, memory, start):
        g = self.shape
        q = (u @ self.weight(layer, "self_attn.q_proj").T).reshape(-1, g.heads, g.head_dim)
        k = (u @ self.weight(layer, "self_attn.k_proj").T).reshape(-1, g.kv_heads, g.head_dim)
        v = (u @ self.weight(layer, "self_attn.v_proj").T).reshape(-1, g.kv_heads, g.head_dim)
        positions = start + numpy.arange(len(u))
        if self.rope and self.has("rope", layer):
            theta = float(self.config["rope_theta"])
            q, k = rotate(q, positions, theta), rotate(k, positions, theta)
        memory["k"] = k = numpy.concatenate([memory["k"], k])
        memory["v"] = v = numpy.concatenate([memory["v"], v])
        k = k.repeat(g.heads // g.kv_heads, 1)
        v = v.repeat(g.heads // g.kv_heads, 1)
        scale = self.multiplier("attention_multiplier", g.head_dim**-0.5)
        scores = numpy.einsum("qhd,khd->hqk", q, k) * scale
        keys = numpy.arange(len(k))
        seen = keys <= positions[:, None]
        if not self.has("past", layer):
            seen = keys == positions[:, None]
        mixed = numpy.einsum("hqk,khd->qhd", softmax(numpy.where(seen, scores, -numpy.inf)), v)
        return mixed.reshape(len(u), -1) @ self.weight(layer, "self_attn.o_proj").T

    def convolve(self, layer, xbc, memory):
        g = self.shape
        taps = self.weight(layer, "mamba.conv1d")[:, 0]
        if not self.has("conv", layer):
            taps = taps * (numpy.arange(g.taps) == g.taps - 1)
        padded = numpy.concatenate([memory["window"], xbc])
        memory["window"] = padded[len(padded) - (g.taps - 1) :]
        out = sum(taps[:, j] * padded[j : j + len(xbc)] for j in range(g.taps))
        if g.conv_bias and self.has("conv_bias", layer):
            out = out + self.weights[f"model.layers.{layer}.mamba.conv1d.bias"]
        return silu(out)

    def recur(self, layer, x, b, c, dt, memory):
        """x [T, heads, P], b and c [T, heads, N], dt [T, heads] -> y [T, heads, P]."""
        a = -numpy.exp(self.weights[f"model.layers.{layer}.mamba.A_log"])
        skip = self.weights[f"model.layers.{layer}.mamba.D"] * self.has("skip", layer)
        s = memory["s"]
        y = numpy.empty_like(x)
        for t in range(len(x)):
            if not self.has("state", layer):
                s = numpy.zeros_like(s)
            if self.has("decay", layer):
                s = numpy.exp(dt[t] * a)[:, None, None] * s
            s = s + (dt[t][:, None] * x[t])[:, :, None] * b[t][:, None, :]
            y[t] = (s @ c[t][:, :, None])[:, :, 0] + skip[:, None] * x[t]
        memory["s"] = s
        return y

    def mamba(self, layer, u, memory, start):
        g = self.shape
        projected = u @ self.weight(layer, "mamba.in_proj").T
        z, xbc, dt = numpy.split(projected, [g.d_inner, g.d_inner + g.conv_channels], -1)
        xbc = self.convolve(layer, xbc, memory)
        x, b, c = numpy.split(xbc, [g.d_inner, g.d_inner + g.groups * g.d_state], -1)
        x = x.reshape(-1, g.ssd_heads, g.ssd_width)
        group = numpy.arange(g.ssd_heads) // (g.ssd_heads // g.groups)
        group = group * self.has("ssd_groups", layer)
        b = b.reshape(-1, g.groups, g.d_state)[:, group]
        c = c.reshape(-1, g.groups, g.d_state)[:, group]
        if self.has("dt_bias", layer):
            dt = dt + self.weights[f"model.layers.{layer}.mamba.dt_bias"]
        low, high = self.config.get("time_step_limit") or (0.0, numpy.inf)
        dt = numpy.clip(softplus(dt), low, high)
        y = self.recur(layer, x, b, c, dt, memory).reshape(len(u), g.d_inner)
        if self.has("gate", layer):
            y = y * silu(z)
        groups = g.groups if self.has("gated_norm_groups", layer) else 1
        y = rms(y.reshape(len(u), groups, -1), 1.0, self.eps).reshape(len(u), g.d_inner)
        if self.has("gated_norm_weight", layer):
            y = y * self.weight(layer, "mamba.norm")
        return y @ self.weight(layer, "mamba.out_proj").T

    def ffn(self, layer, u):
        out = numpy.zeros_like(u)
        if self.has("shared_mlp", layer):
            wide = u @ self.weight(layer, "shared_mlp.input_linear").T
            gate, up = numpy.split(wide, 2, -1)
            out = out + (silu(gate) * up) @ self.weight(layer, "shared_mlp.output_linear").T
        if self.shape.experts and self.has("experts", layer):
            out = out + self.moe(layer, u)
        return out

    def moe(self, layer, u):
        """Top-k of the raw logits, softmax over the chosen ones, gate rows first."""
        k = self.shape.top_k
        wide = self.weight(layer, "block_sparse_moe.input_linear")
        narrow = self.weight(layer, "block_sparse_moe.output_linear")
        logits = u @ self.weight(layer, "block_sparse_moe.router.layer").T
        order = numpy.argsort(-logits, axis=-1, kind="stable")
        ranked = numpy.take_along_axis(logits, order, -1)
        if k < self.shape.experts:
            gap = (ranked[:, k - 1] - ranked[:, k]) / numpy.abs(logits).max()
            self.router_gap = min(self.router_gap, gap.min())
        if not self.has("router_choice", layer):
            order, ranked = order[:, ::-1], ranked[:, ::-1]
        share = softmax(ranked[:, :k])
        if not self.has("router_weights", layer):
            share = numpy.full_like(share, 1 / k)
        out = numpy.zeros_like(u)
        for t in range(len(u)):
            for j in range(k):
                expert = order[t, j]
                gate, up = numpy.split(wide[expert] @ u[t], 2)
                out[t] += share[t, j] * (narrow[expert] @ (silu(gate) * up))
        return out

    def greedy(self, prompt, count):
        """count tokens, each the most likely one, and the logits [count, vocab] that chose them."""
        memory = Memory(self)
        logits = self.forward(prompt, memory)[0][-1]
        tokens, rows = [], []
        for _ in range(count):
            rows.append(logits)
            tokens.append(int(logits.argmax()))
            logits = self.forward(tokens[-1:], memory)[0][-1]
        return tokens, numpy.stack(rows)


def load(folder):
    return Model(checkpoint.read_json(folder + "/config.json"), checkpoint.read_weights(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="model folder: config.json and safetensors")
    parser.add_argument("--tokens", required=True, help="prompt: token ids with commas between")
    parser.add_argument("--count", type=int, default=16, help="tokens to generate greedily")
    parser.add_argument("--off", action="append", default=[], choices=terms, help="switch off")
    args = parser.parse_args()
    model = load(args.folder).without(*args.off)
    tokens, rows = model.greedy([int(token) for token in args.tokens.split(",")], args.count)
    for token, row in zip(tokens, rows):
        second = numpy.partition(row, -2)[-2]
        print(f"{token}\tlogit {row[token]:.6f}\tmargin {row[token] - second:.6f}")


if __name__ == "__main__":
    main()
