"""Drafts of a DFlash head in float64, written from the formulas.

These are z-lab's model.py, vLLM's qwen3_dflash.py and llama.cpp's dflash.cpp: the keys and values
of positions that have run are made of what leaves some layers of the model; a block, which is the
token that has not run and mask tokens after it, goes through the layers at once, and each mask says
what token is there. Layers with windows are causal, others see the whole block. Needs numpy.
"""

import numpy

from checkpoints import quantised_weights
from reference.numerics import rms, rope_speeds, rotate, silu, softmax


class Head:
    def __init__(self, config, tensors, model):
        """tensors: of the head's folder; model: the models.Model that it drafts for."""
        self.config, self.model = config, model
        self.own = config["dflash_config"]
        self.weights = quantised_weights.dequantised(tensors)
        self.eps = config["rms_norm_eps"]

    def norm(self, name, x):
        return rms(x, self.weights[name + ".weight"], self.eps)

    def projected(self, layer, name, x):
        y = x @ self.weights[f"layers.{layer}.self_attn.{name}_proj.weight"].T
        return y.reshape(len(x), -1, self.config["head_dim"])

    def turned(self, layer, name, x, positions):
        normed = self.norm(f"layers.{layer}.self_attn.{name}_norm", x)
        speeds, length = rope_speeds(self.config["rope_theta"], x.shape[-1], None)
        return rotate(normed, positions, speeds) * length

    def sees(self, layer, queries, keys):
        """[queries, keys] of positions."""
        kinds = self.config.get("layer_types")
        distance = queries[:, None] - keys
        if self.config.get("is_causal") or (kinds and kinds[layer] == "sliding_attention"):
            seen = distance >= 0
        else:
            seen = numpy.full(distance.shape, True)
        if kinds and kinds[layer] == "sliding_attention":
            seen &= distance < self.config["sliding_window"]
        return seen

    def attend(self, layer, u, features, positions):
        """u: of the block; features: of all positions before it."""
        heads, kv_heads = (
            self.config[key] for key in ("num_attention_heads", "num_key_value_heads")
        )
        all_positions = numpy.concatenate([numpy.arange(len(features)), positions])
        rows = numpy.concatenate([features, u])
        q = self.turned(layer, "q", self.projected(layer, "q", u), positions)
        k = self.turned(layer, "k", self.projected(layer, "k", rows), all_positions)
        v = self.projected(layer, "v", rows)
        k, v = (each.repeat(heads // kv_heads, 1) for each in (k, v))
        scores = numpy.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        scores = numpy.where(self.sees(layer, positions, all_positions), scores, -numpy.inf)
        mixed = numpy.einsum("hqk,khd->qhd", softmax(scores), v)
        return mixed.reshape(len(u), -1) @ self.weights[f"layers.{layer}.self_attn.o_proj.weight"].T

    def feed_forward(self, layer, u):
        gate, up = (
            u @ self.weights[f"layers.{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up")
        )
        return (silu(gate) * up) @ self.weights[f"layers.{layer}.mlp.down_proj.weight"].T

    def logits(self, hidden):
        model = self.model
        logits = hidden @ model.weights[model.plan.head or model.plan.embed].T
        logits = logits * self.own.get("output_multiplier", 1.0)
        cap = self.own.get("final_logit_softcapping")
        return numpy.tanh(logits / cap) * cap if cap else logits

    def draft(self, known, count):
        """count tokens after those that are known, each the likeliest, and logits [count, vocab].
        The last known one has not run."""
        streams = self.model.forward(known[:-1])[1]
        read = numpy.concatenate([streams[i + 1] for i in self.own["target_layer_ids"]], 1)
        features = self.norm("hidden_norm", read @ self.weights["fc.weight"].T)
        block = numpy.array([known[-1]] + [self.own["mask_token_id"]] * count)
        positions = len(known) - 1 + numpy.arange(len(block))
        h = self.model.weights[self.model.plan.embed][block]
        h = h * self.own.get("input_embedding_scale", 1.0)
        for layer in range(self.config["num_hidden_layers"]):
            u = self.norm(f"layers.{layer}.input_layernorm", h)
            h = h + self.attend(layer, u, features, positions)
            u = self.norm(f"layers.{layer}.post_attention_layernorm", h)
            h = h + self.feed_forward(layer, u)
        logits = self.logits(self.norm("norm", h)[1:])
        return logits.argmax(-1).tolist(), logits
