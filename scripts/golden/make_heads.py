#!/usr/bin/env python3
"""Make the heads under tests/heads: tiny random ones for models of tests/golden, each named after
its model, those of the kind DFlash with -dflash, and what the float64 references draft with them
(golden_drafts.*, as in tests/golden). Seeds are tried in order until no draft is a close call.
Needs numpy.

    scripts/golden/make_heads.py            # all of them
    scripts/golden/make_heads.py llama-3    # one
"""

import argparse
import os
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import numpy

from checkpoints import checkpoint_files
from golden import llama
from reference import dflash, eagle3, models

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests")
steps = 4
least_margin = 1e-3

# Of each: sizes; what else config.json has; the prefix of the layer's tensors; whether the model's
# embedding is in the files, too.
eagle3_heads = {
    # No slots; llama3's rope; a vocabulary of its own.
    "llama-3": {
        "sizes": {"heads": 3, "kv_heads": 1, "head_dim": 16, "hidden": 40, "vocab": 61},
        "config": {
            "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
            "rope_theta": 500.0,
            "rope_scaling": llama.llama3["rope_scaling"],
        },
    },
    # Mamba-2; layers that it leaves; the stream begins normed; another eps; the copied embedding.
    "granite-odd": {
        "sizes": {"heads": 2, "kv_heads": 2, "head_dim": 34, "hidden": 30, "vocab": 50},
        "config": {
            "eagle_config": {
                "use_aux_hidden_state": True,
                "eagle_aux_hidden_state_layer_ids": [0, 1, 3],
            },
            "norm_before_residual": True,
            "rms_norm_eps": 1e-2,
            "rope_theta": 100.0,
        },
        "prefix": "layers.0.",
        "copies_embedding": True,
    },
    # A delta net, and an MTP layer that the head takes the place of; the model's vocabulary.
    "qwen3_5-text": {
        "sizes": {"heads": 4, "kv_heads": 2, "head_dim": 8, "hidden": 52, "vocab": None},
        "config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "rope_theta": 10000.0},
    },
    # Windows of attention beside attention over everything; no slots.
    "gpt-oss": {
        "sizes": {"heads": 4, "kv_heads": 1, "head_dim": 12, "hidden": 36, "vocab": 80},
        "config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "rope_theta": 1000.0},
    },
}

# Of each: sizes; dflash_config; what else config.json has.
dflash_heads = {
    # No slots; layers that see the whole block; one layer of the model is read.
    "llama-3-dflash": {
        "sizes": {"heads": 4, "kv_heads": 2, "head_dim": 12, "hidden": 44, "layers": 2},
        "own": {"block_size": 16, "target_layer_ids": [1]},
        "config": {"rope_theta": 500.0},
    },
    # A delta net; a window, whose layer is causal, before and after one that sees the block; a
    # factor and a cap on the logits, and a factor on the embedding.
    "qwen3_5-text-dflash": {
        "sizes": {"heads": 3, "kv_heads": 1, "head_dim": 16, "hidden": 40, "layers": 3},
        "own": {
            "block_size": 8,
            "target_layer_ids": [0, 1],
            "output_multiplier": 0.5,
            "final_logit_softcapping": 7.0,
            "input_embedding_scale": 1.5,
        },
        "config": {
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-3,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    },
    # Windows of the model beside the head's layers, which are all causal; the copied embedding.
    "gpt-oss-dflash": {
        "sizes": {"heads": 2, "kv_heads": 2, "head_dim": 10, "hidden": 36, "layers": 1},
        "own": {"block_size": 8, "target_layer_ids": [0, 1]},
        "config": {"rope_theta": 1000.0, "is_causal": True},
        "copies_embedding": True,
    },
    # Mamba-2; a window alone.
    "granite-odd-dflash": {
        "sizes": {"heads": 2, "kv_heads": 1, "head_dim": 8, "hidden": 32, "layers": 1},
        "own": {"block_size": 8, "target_layer_ids": [2]},
        "config": {
            "rope_theta": 100.0,
            "sliding_window": 20,
            "layer_types": ["sliding_attention"],
        },
    },
}
heads = {**eagle3_heads, **dflash_heads}


def is_dflash(name):
    return name in dflash_heads


def model_of(name):
    return name.removesuffix("-dflash")


def shared_config(sizes, layers, model):
    return {
        "attention_bias": False,
        "head_dim": sizes["head_dim"],
        "hidden_act": "silu",
        "hidden_size": model.plan.hidden,
        "intermediate_size": sizes["hidden"],
        "max_position_embeddings": 512,
        "num_attention_heads": sizes["heads"],
        "num_hidden_layers": layers,
        "num_key_value_heads": sizes["kv_heads"],
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": model.plan.vocab,
    }


def dflash_config_of(one, model):
    layers = one["sizes"]["layers"]
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        **shared_config(one["sizes"], layers, model),
        "dflash_config": {"mask_token_id": model.plan.vocab - 2, **one["own"]},
        "layer_types": ["full_attention"] * layers,
        "num_target_layers": len(model.plan.layers),
        "sliding_window": None,
        **one["config"],
    }


def dflash_table_of(one, model):
    """(name, shape, kind) of the tensors that are drawn."""
    sizes, h = one["sizes"], model.plan.hidden
    width, kv_width = (sizes[key] * sizes["head_dim"] for key in ("heads", "kv_heads"))
    yield "fc.weight", (h, len(one["own"]["target_layer_ids"]) * h), "linear"
    for layer in range(sizes["layers"]):
        at = f"layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{name}.weight", (h,), "norm"
        for name, rows in (("q", width), ("k", kv_width), ("v", kv_width)):
            yield f"{at}self_attn.{name}_proj.weight", (rows, h), "linear"
        for name in "qk":
            yield f"{at}self_attn.{name}_norm.weight", (sizes["head_dim"],), "norm"
        yield f"{at}self_attn.o_proj.weight", (h, width), "linear"
        for name in ("gate", "up"):
            yield f"{at}mlp.{name}_proj.weight", (sizes["hidden"], h), "linear"
        yield f"{at}mlp.down_proj.weight", (h, sizes["hidden"]), "linear"
    for name in ("hidden_norm", "norm"):
        yield f"{name}.weight", (h,), "norm"


def eagle3_config_of(one, model):
    sizes = one["sizes"]
    vocabulary = {"draft_vocab_size": sizes["vocab"]} if sizes["vocab"] else {}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **shared_config(sizes, 1, model),
        **vocabulary,
        **one["config"],
    }


def eagle3_table_of(one, model):
    """(name, shape, kind) of the tensors that are drawn."""
    sizes, h = one["sizes"], model.plan.hidden
    layer = one.get("prefix", "midlayer.")
    width, kv_width = (sizes[key] * sizes["head_dim"] for key in ("heads", "kv_heads"))
    yield "fc.weight", (h, 3 * h), "linear"
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"{layer}{name}.weight", (h,), "norm"
    for name, rows in (("q", width), ("k", kv_width), ("v", kv_width)):
        yield f"{layer}self_attn.{name}_proj.weight", (rows, 2 * h), "linear"
    yield f"{layer}self_attn.o_proj.weight", (h, width), "linear"
    for name in ("gate", "up"):
        yield f"{layer}mlp.{name}_proj.weight", (sizes["hidden"], h), "linear"
    yield f"{layer}mlp.down_proj.weight", (h, sizes["hidden"]), "linear"
    yield "norm.weight", (h,), "norm"
    yield "lm_head.weight", (sizes["vocab"] or model.plan.vocab, h), "linear"


def array_entry(name, dtype, values):
    return name, dtype, values.shape, values.nbytes, lambda: values


def write_head(folder, name, model, raw, seed):
    """raw: the model's tensors as they are stored."""
    one = heads[name]
    config_of = dflash_config_of if is_dflash(name) else eagle3_config_of
    table_of = dflash_table_of if is_dflash(name) else eagle3_table_of
    os.makedirs(folder, exist_ok=True)
    checkpoint_files.write_json(os.path.join(folder, "config.json"), config_of(one, model))
    entries = checkpoint_files.drawn(table_of(one, model), seed)
    if one["sizes"].get("vocab"):
        rng = numpy.random.Generator(numpy.random.PCG64([seed, 1]))
        tokens = numpy.sort(rng.choice(model.plan.vocab, one["sizes"]["vocab"], replace=False))
        offsets = (tokens - numpy.arange(len(tokens))).astype(numpy.int64)
        mask = numpy.isin(numpy.arange(model.plan.vocab), tokens).astype(numpy.uint8)
        entries += [array_entry("d2t", "I64", offsets), array_entry("t2d", "BOOL", mask)]
    if one.get("copies_embedding"):
        entries.append(array_entry("embed_tokens.weight", "BF16", raw[model.plan.embed]))
    checkpoint_files.write_tensors(folder, entries)


def least_gap(logits):
    """Between the two likeliest tokens of a draft, over the largest logit."""
    top = numpy.sort(logits, -1)[:, -2:]
    return float((top[:, 1] - top[:, 0]).min() / numpy.abs(top).max())


def make(name):
    folder = os.path.join(here, "heads", name)
    source = os.path.join(here, "golden", model_of(name))
    model = models.load(source)
    raw = checkpoint_files.read_weights(source)
    golden = checkpoint_files.read_json(os.path.join(source, "golden.json"))
    prompt = golden["prompts"][golden["main_prompt"]]
    lengths = sorted({2, 3, 4, 5, 17, 18, len(prompt)})
    for seed in range(1, 100):
        write_head(folder, name, model, raw, seed)
        config = checkpoint_files.read_json(os.path.join(folder, "config.json"))
        kind = dflash if is_dflash(name) else eagle3
        head = kind.Head(config, checkpoint_files.read_weights(folder), model)
        found = [head.draft(prompt[:length], steps) for length in lengths]
        logits = numpy.concatenate([rows for _, rows in found])
        if least_gap(logits) >= least_margin and len({t for each in found for t in each[0]}) > 8:
            break
    else:
        raise SystemExit(f"{name}: every seed has a draft that is a close call")
    print(f"{name}: seed {seed}, smallest gap {least_gap(logits):.4f}")
    logits = logits.reshape(len(lengths), steps, -1).astype(numpy.float32)
    checkpoint_files.write_safetensors(
        os.path.join(folder, "golden_drafts.safetensors"),
        [array_entry("logits", "F32", logits)],
    )
    drafts = {"lengths": lengths, "drafts": [tokens for tokens, _ in found]}
    checkpoint_files.write_json(os.path.join(folder, "golden_drafts.json"), drafts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=heads, help="of one; all of them")
    name = parser.parse_args().name
    for each in [name] if name else heads:
        make(each)


if __name__ == "__main__":
    main()
