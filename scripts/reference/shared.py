"""Zamba2's transformer blocks, whose weights several layers share; each has its own adapters."""

import math

import numpy

from reference.attention import Attention
from reference.numerics import rms
from reference.part import Part


def gelu(x):
    return 0.5 * x * (1 + numpy.vectorize(math.erf)(x / 2**0.5))


class PairAttention(Attention):
    """Reads [x | embedding]; adapter: (model, layer, role, input) -> what is added to q, k or v."""

    def tensors(self):
        for name, shape, kind in super().tensors():
            yield name, (self.hidden // 2, shape[1]) if name == self.name["o"] else shape, kind

    def project(self, model, layer, role, x):
        return super().project(model, layer, role, x) + self.adapter(model, layer, role, x)


class SharedTransformer(Part):
    """linear * mlp(norm(attention(norm([x | embedding])))), the last two of the layer, all else of
    the block. Options: attention; width (of the feed-forward); block: what its names begin with;
    use: how many layers before have a block; is_first: with this block; rank, adapts_qkv."""

    names = {"linear": "linear.weight"}
    block_names = {
        "norm": "input_layernorm.weight",
        "mlp_norm": "pre_ff_layernorm.weight",
        "gate_up": "feed_forward.gate_up_proj.weight",
        "down": "feed_forward.down_proj.weight",
    }

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.name.update({role: self.block + end for role, end in self.block_names.items()})
        self.attention.adapter = self.adapter
        self.multiplier = self.attention.multiplier

    def adapter_names(self, role):
        where = {"mlp": "feed_forward.gate_up_proj"}.get(role, f"self_attn.linear_{role}")
        return [f"{self.block}{where}_adapter_list.{self.use}.{i}.weight" for i in (0, 1)]

    def tensors(self):
        hidden = self.hidden
        if self.is_first:
            yield self.name["norm"], (2 * hidden,), "norm"
            yield from self.attention.tensors()
            yield self.name["mlp_norm"], (hidden,), "norm"
            yield self.name["gate_up"], (2 * self.width, hidden), "linear"
            yield self.name["down"], (hidden, self.width), "linear"
        inner = self.attention.heads * self.attention.head_dim
        adapted = {role: (2 * hidden, inner) for role in "qkv"} if self.adapts_qkv else {}
        for role, (columns, rows) in {**adapted, "mlp": (hidden, 2 * self.width)}.items():
            left, right = self.adapter_names(role)
            yield left, (self.rank, columns), "linear"
            yield right, (rows, self.rank), "linear"
        yield self.name["linear"], (hidden, hidden), "linear"

    def terms(self):
        found = ["shared_transformer", "shared_embedding", "mlp_adapter"]
        return [*found, *self.attention.terms()] + (["qkv_adapter"] if self.adapts_qkv else [])

    def nothing(self):
        return self.attention.nothing()

    def adapter(self, model, layer, role, x):
        term = "mlp_adapter" if role == "mlp" else "qkv_adapter"
        has_one = role == "mlp" or (self.adapts_qkv and role != "o")
        if not has_one or not model.has(term, layer):
            return 0.0
        left, right = (model.weights[name] for name in self.adapter_names(role))
        return x @ left.T @ right.T

    def run(self, model, layer, u, memory, start):
        if not model.has("shared_transformer", layer):
            self.attention.run(model, layer, numpy.zeros((len(u), 2 * self.hidden)), memory, start)
            return numpy.zeros_like(u)
        embedding = model.embedding * model.has("shared_embedding", layer)
        weigh = lambda role: self.get(model, role) if model.has("norm_weights", layer) else 1.0
        x = rms(numpy.concatenate([u, embedding], -1), weigh("norm"), model.plan.eps)
        x = self.attention.run(model, layer, x, memory, start)
        x = rms(x, weigh("mlp_norm"), model.plan.eps)
        wide = self.apply(model, "gate_up", x) + self.adapter(model, layer, "mlp", x)
        gate, up = numpy.split(wide, 2, -1)
        return self.apply(model, "linear", self.apply(model, "down", gelu(gate) * up))
