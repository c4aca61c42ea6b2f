#!/usr/bin/env python3
"""Drafts of a model's own draft layer (multi-token prediction) in float64.

transformers leaves the tensors of the layer out, so this is written from how vLLM's
Qwen3_5MultiTokenPredictor and NemotronHMultiTokenPredictor and llama.cpp's graphs of these families
compute it: what the model says of a position is taken after its final norm.

    scripts/reference/drafts.py FOLDER    # writes golden_drafts.json and golden_drafts.safetensors
"""

import argparse
import os
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import numpy

from checkpoints import checkpoint_files
from reference import families
from reference.models import Model

steps = 4


# What is around the layer: of the embedding, of what the model says, of both, and the last norm.
qwen_names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
nemotron_names = (
    "layers.0.enorm",
    "layers.0.hnorm",
    "layers.0.eh_proj",
    "layers.1.final_layernorm",
)


def names_of(tensors):
    """Their whole names; None: a checkpoint without the layer."""
    for names in (qwen_names, nemotron_names):
        found = [f"mtp.{name}.weight" for name in names]
        if all(name in tensors for name in found):
            return found
    return None


def layer_config(config):
    """Of a model with this layer alone: attention, and experts where the model has some."""
    text = families.text_config(config)
    if text["model_type"] == "nemotron_h":
        rest = {key: value for key, value in text.items() if key != "layers_block_type"}
        return {**rest, "hybrid_override_pattern": "*E"}
    sparse = {"mlp_only_layers": [], "decoder_sparse_step": 1}
    return {**text, "layer_types": ["full_attention"], "num_hidden_layers": 1, **sparse}


class DraftLayer:
    def __init__(self, config, tensors):
        self.model = Model(config, tensors)
        self.names = names_of(tensors)
        fused = any("mtp." in name and name.endswith("gate_up_proj") for name in tensors)
        plan = families.plan_of(layer_config(config), "mtp.", fused)
        self.blocks = [block for layer in plan.layers for block in layer]

    def new_memory(self):
        return [part.nothing() for block in self.blocks for part in block.parts]

    def run(self, tokens, before, memory, start):
        """Of entries from position `start` on, made of these tokens and of what was said of the
        position before each: what the layer says of them."""
        model = self.model
        embedding = model.weights[model.plan.embed][numpy.asarray(tokens)]
        embedding_norm, hidden_norm, fc, last_norm = self.names
        pair = [model.norm(embedding_norm, embedding), model.norm(hidden_norm, before)]
        h = numpy.concatenate(pair, axis=1) @ model.weights[fc].T
        kept = iter(memory)
        for block in self.blocks:
            u = model.norm(block.norm, h)
            for part in block.parts:
                h = h + part.run(model, 0, u, next(kept), start)
        return model.norm(last_norm, h)

    def logits(self, hidden):
        model = self.model
        return hidden @ model.weights[model.plan.head or model.plan.embed].T

    def draft(self, known, count):
        """count tokens after those that are known, each the likeliest, and logits [count, vocab].
        The last known one has not run."""
        model = self.model
        stream = model.forward(known[:-1])[1][-1]
        said = model.norm(model.plan.final_norm, stream)
        before = numpy.concatenate([numpy.zeros_like(said[:1]), said])
        memory = self.new_memory()
        hidden = self.run(known, before, memory, 0)[-1:]
        tokens, rows = [], []
        for step in range(count):
            rows.append(self.logits(hidden)[0])
            tokens.append(int(rows[-1].argmax()))
            hidden = self.run(tokens[-1:], hidden, memory, len(known) + step)
        return tokens, numpy.stack(rows)


def write(folder, prompt):
    """Of all lengths of a prompt up to 5, and of some longer ones."""
    config = checkpoint_files.read_json(os.path.join(folder, "config.json"))
    layer = DraftLayer(config, checkpoint_files.read_weights(folder))
    lengths = sorted({2, 3, 4, 5, 17, 18, len(prompt)})
    found = [layer.draft(prompt[:length], steps) for length in lengths]
    logits = numpy.stack([rows for _, rows in found]).astype(numpy.float32)
    checkpoint_files.write_safetensors(
        os.path.join(folder, "golden_drafts.safetensors"),
        [("logits", "F32", logits.shape, logits.nbytes, lambda: logits)],
    )
    golden = {"lengths": lengths, "drafts": [tokens for tokens, _ in found]}
    checkpoint_files.write_json(os.path.join(folder, "golden_drafts.json"), golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="a fixture of tests/golden with tensors of a draft layer")
    folder = parser.parse_args().folder
    golden = checkpoint_files.read_json(os.path.join(folder, "golden.json"))
    write(folder, golden["prompts"][golden["main_prompt"]])


if __name__ == "__main__":
    main()
