"""Drafts of an EAGLE-3 head in float64, written from the formulas.

These are SGLang's and vLLM's llama_eagle3.py and SafeAILab's cnets.py: what the head gets of its
model enters three of its layers; its first residual stream is that after `fc`, or with
`norm_before_residual` the norm of it; a further draft begins with the stream before the last norm.
Unlike there a sequence's first token has an entry, too, whose features are zeros. Needs numpy.
"""

import numpy

from checkpoints import quantised_weights
from reference.numerics import rms, rope_speeds, rotate, silu, softmax


def layers_read(config, layers):
    """Before which layers of a model with `layers` of them."""
    key = "eagle_aux_hidden_state_layer_ids"
    if config.get(key):
        return list(config[key])
    after = config.get("eagle_config", {}).get(key)
    if after:
        return [layer + 1 for layer in after]
    return [2, layers // 2, layers - 3]


class Head:
    def __init__(self, config, tensors, model):
        """tensors: of the head's folder; model: the models.Model that it drafts for."""
        self.config, self.model = config, model
        self.tables = {name: tensors[name] for name in ("d2t", "t2d") if name in tensors}
        rest = {name: value for name, value in tensors.items() if name not in self.tables}
        self.weights = {
            name.replace("layers.0.", "midlayer."): value
            for name, value in quantised_weights.dequantised(rest).items()
        }
        self.taps = layers_read(config, len(model.plan.layers))
        self.eps = config["rms_norm_eps"]

    def norm(self, name, x):
        return rms(x, self.weights[name + ".weight"], self.eps)

    def turned(self, x, positions):
        scaling = self.config.get("rope_scaling")
        speeds, length = rope_speeds(self.config["rope_theta"], x.shape[-1], scaling)
        return rotate(x, positions, speeds) * length

    def attend(self, pairs, memory, start):
        """memory: k and v [entries, kv heads, head dim], which grow."""
        heads, kv_heads = (
            self.config[key] for key in ("num_attention_heads", "num_key_value_heads")
        )
        q, k, v = (
            pairs @ self.weights[f"midlayer.self_attn.{name}_proj.weight"].T for name in "qkv"
        )
        positions = start + numpy.arange(len(pairs))
        q = self.turned(q.reshape(len(pairs), heads, -1), positions)
        k = self.turned(k.reshape(len(pairs), kv_heads, -1), positions)
        memory["k"] = numpy.concatenate([memory["k"], k]) if "k" in memory else k
        v = v.reshape(k.shape)
        memory["v"] = numpy.concatenate([memory["v"], v]) if "v" in memory else v
        k, v = (memory[name].repeat(heads // kv_heads, 1) for name in "kv")
        scores = numpy.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        seen = numpy.arange(len(k)) <= positions[:, None]
        mixed = numpy.einsum("hqk,khd->qhd", softmax(numpy.where(seen, scores, -numpy.inf)), v)
        return mixed.reshape(len(pairs), -1) @ self.weights["midlayer.self_attn.o_proj.weight"].T

    def run(self, tokens, features, memory, start):
        """Of entries from position `start` on: the stream before the last norm."""
        embedding = self.model.weights[self.model.plan.embed][numpy.asarray(tokens)]
        normed = self.norm("midlayer.hidden_norm", features)
        pairs = [self.norm("midlayer.input_layernorm", embedding), normed]
        h = normed if self.config.get("norm_before_residual") else features
        h = h + self.attend(numpy.concatenate(pairs, 1), memory, start)
        u = self.norm("midlayer.post_attention_layernorm", h)
        gate, up = (
            u @ self.weights[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up")
        )
        return h + (silu(gate) * up) @ self.weights["midlayer.mlp.down_proj.weight"].T

    def logits(self, stream):
        """[vocab of the model]; minus infinity for tokens that the head has not."""
        own = self.norm("norm", stream) @ self.weights["lm_head.weight"].T
        tokens = numpy.arange(len(own))
        if "d2t" in self.tables:
            tokens = tokens + self.tables["d2t"]
        logits = numpy.full(self.model.plan.vocab, -numpy.inf)
        logits[tokens] = own
        return logits

    def draft(self, known, count):
        """count tokens after those that are known, each the likeliest, and logits [count, vocab].
        The last known one has not run."""
        streams = self.model.forward(known[:-1])[1]
        read = numpy.concatenate([streams[layer] for layer in self.taps], 1)
        features = read @ self.weights["fc.weight"].T
        features = numpy.concatenate([numpy.zeros_like(features[:1]), features])
        memory = {}
        stream = self.run(known, features, memory, 0)[-1:]
        tokens, rows = [], []
        for step in range(count):
            rows.append(self.logits(stream[0]))
            tokens.append(int(rows[-1].argmax()))
            stream = self.run(tokens[-1:], stream, memory, len(known) + step)
        return tokens, numpy.stack(rows)
