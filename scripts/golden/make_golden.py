#!/usr/bin/env python3
"""Make the golden fixtures under tests/golden: tiny models, and what transformers says about them.

Each fixture is a model folder as Hugging Face publishes them, golden.json and golden.safetensors;
tests/golden/README.md describes them. Seeds are tried in order until the model passes every check
(`refusals`), so the result depends on this file and the package versions alone.
Needs numpy, torch and transformers (and tokenizers, for the fixtures with a tokenizer).

    scripts/golden/make_golden.py --only NAME --reference-only

needs numpy alone: logits, stream and greedy tokens are then those of the float64 reference, which
golden.json says, and no second implementation has confirmed that reference. It is a beginning: the
fixture is made again without the option where transformers is.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the order of sums, and so the last bits, hang on it
os.environ["OMP_NUM_THREADS"] = "1"

import numpy

from checkpoints import checkpoint_files as checkpoint
from golden import quantise, recipes, transformers_peer as peer
from golden.recipe import tensors_of
from reference import drafts, families, models as reference

default_out = str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden")
greedy_count = 64
least_effect = 1e-2
least_distinct = 24
least_margin = 1e-3
least_router_gap = 3e-4
largest_difference = 1e-5
disagreement = 2e-4
largest_bf16_rms = 2e-2
golden_from = {False: "transformers",
               True: "the float64 reference alone: transformers has not confirmed it"}


def relative(difference, logits):
    return float(numpy.abs(difference).max() / numpy.abs(logits).max())


def effects(model, prompt, logits):
    """How far each term moves the logits: switched off everywhere, and in its weakest layer."""
    found = {}
    for term, layers in model.terms().items():
        everywhere = relative(model.without(term).forward(prompt)[0] - logits, logits)
        each = [everywhere]
        if layers != [None]:
            for layer in layers:
                other = model.without((term, layer)).forward(prompt)[0]
                each.append(relative(other - logits, logits))
        found[term] = {"everywhere": everywhere, "weakest_layer": min(each)}
    return found


def margin(rows):
    """Smallest distance between the two largest logits of a row, over the largest of all."""
    top = numpy.partition(rows, -2, -1)[:, -2:]
    return float((top[:, 1] - top[:, 0]).min() / numpy.abs(rows).max())


def make_prompts(model, recipe, seed):
    rng = numpy.random.Generator(numpy.random.PCG64([seed, 1]))
    stop = {*recipe["stop"], recipe["generation"].get("pad_token_id")}
    allowed = [token for token in range(model.plan.vocab) if token not in stop]
    return [[int(token) for token in rng.choice(allowed, length)] for length in recipe["lengths"]]


def figures(model, prompts, stop):
    """What the float64 reference says about a candidate, cheapest checks first."""
    found = {}
    main = prompts[-1]
    tokens, rows = model.greedy(main, greedy_count)
    found["distinct_greedy_tokens"] = len(set(tokens))
    found["stop_tokens_in_greedy"] = sum(token in stop for token in tokens)
    per_prompt = [model.forward(prompt)[0] for prompt in prompts]
    found["smallest_margin"] = min(margin(rows), min(margin(each) for each in per_prompt))
    if numpy.isfinite(model.router_gap):
        found["smallest_router_gap"] = float(model.router_gap)
    if not refusals(found):
        found["effects"] = effects(model, main, per_prompt[-1])
    return found


def effect_of_scales(folder, model, prompt):
    """How far the scales of quantised weights, made all alike, move the logits."""
    config = checkpoint.read_json(os.path.join(folder, "config.json"))
    tensors = quantise.with_level_scales(checkpoint.read_weights(folder))
    logits = model.forward(prompt)[0]
    move = relative(reference.Model(config, tensors).forward(prompt)[0] - logits, logits)
    return {"everywhere": move, "weakest_layer": move}


def refusals(found):
    """Why a candidate is no good; empty when it is."""
    reasons = []
    if found["distinct_greedy_tokens"] < least_distinct:
        reasons.append(f"only {found['distinct_greedy_tokens']} distinct greedy tokens")
    if found["stop_tokens_in_greedy"]:
        reasons.append("the greedy run holds the stop token")
    if found["smallest_margin"] < least_margin:
        reasons.append(f"a top-1 margin of {found['smallest_margin']:.1e}")
    if found.get("smallest_router_gap", 1.0) < least_router_gap:
        reasons.append(f"a router gap of {found['smallest_router_gap']:.1e}")
    for term, effect in found.get("effects", {}).items():
        if effect["weakest_layer"] < least_effect:
            reasons.append(f"{term} moves the logits by {effect['weakest_layer']:.1e} only")
    return reasons


def write_model(folder, recipe, seed):
    config = recipe["config"]
    os.makedirs(folder)
    checkpoint.write_json(os.path.join(folder, "config.json"), config)
    generation = {"_from_model_config": True, **recipe["generation"]}
    checkpoint.write_json(os.path.join(folder, "generation_config.json"), generation)
    table = tensors_of(recipe)
    entries = checkpoint.drawn(table, seed, recipe["half"])
    if recipe["quantise"]:
        entries = quantise.quantised(entries, recipe["quantise"])
        quantise.write_settings(folder, recipe["quantise"])
    limit = checkpoint.shard_limit
    if recipe["shards"] > 1:
        sizes = [entry[3] for entry in entries]
        limit = sum(sizes) // recipe["shards"] + max(sizes)
    checkpoint.write_tensors(folder, entries, limit)
    if recipe["tokenizer"]:
        from checkpoints import tiny_tokenizers

        text = families.text_config(config)
        tiny_tokenizers.write(folder, recipe["tokenizer"], text, recipe["padding_rows"])


def distance(found, expected):
    """Largest and root-mean-square difference over all rows, and the root-mean-square difference of
    the middle row, over the largest logit."""
    largest = max(float(numpy.abs(each).max()) for each in expected)
    gap = numpy.concatenate([x - y for x, y in zip(found, expected)]).astype(float)
    rows = (gap**2).mean(axis=1) ** 0.5
    rms = (gap**2).mean() ** 0.5
    return {
        "max": float(numpy.abs(gap).max() / largest),
        "rms": float(rms / largest),
        "middle_row": float(numpy.median(rows) / largest),
    }


def compare(folder, recipe, model, prompts, found):
    """Run transformers in f32 and bf16. Stop where it and the reference disagree; None where they
    are farther apart than f32 should be, or bf16 from f32 (a norm of nearly nothing, say, or many
    experts flipped): another seed may do."""
    import torch

    logits, stream, tokens = peer.run(folder, recipe, torch.float32, prompts, greedy_count)
    own = [model.forward(prompt) for prompt in prompts]
    found["transformers_f32_to_reference"] = distance(logits, [each[0] for each in own])
    found["stream_to_reference"] = relative(stream - own[-1][1], own[-1][1])
    reference_tokens = model.greedy(prompts[-1], greedy_count)[0]
    difference = found["transformers_f32_to_reference"]["max"]
    if difference > disagreement:
        raise SystemExit(f"{folder}: reference and transformers differ: {found}")
    if difference > largest_difference:
        print(f"    transformers in f32 is {difference:.1e} off")
        return None
    if tokens != reference_tokens:
        raise SystemExit(f"{folder}: greedy tokens differ: {tokens} {reference_tokens}")
    rounded, _, rounded_tokens = peer.run(folder, recipe, torch.bfloat16, prompts, greedy_count)
    bf16 = distance(rounded, logits)
    if bf16["rms"] > largest_bf16_rms:
        print(f"    transformers in bf16 is {bf16['rms']:.1e} off")
        return None
    found["bf16_greedy_tokens_equal"] = sum(x == y for x, y in zip(rounded_tokens, tokens))
    return logits, stream, tokens, bf16


def from_reference(model, prompts):
    """What `compare` returns, from the reference alone. How far bf16 may be from f32 it cannot say:
    as far as in the fixtures where that is the most."""
    own = [model.forward(prompt) for prompt in prompts]
    paths = pathlib.Path(default_out).glob("*/golden.json")
    others = [checkpoint.read_json(path)["bf16_distance"] for path in paths]
    bf16 = {key: max(each[key] for each in others) for key in ("max", "rms", "middle_row")}
    logits = [each[0].astype(numpy.float32) for each in own]
    tokens = model.greedy(prompts[-1], greedy_count)[0]
    return logits, own[-1][1].astype(numpy.float32), tokens, bf16


def write_golden(folder, name, recipe, seed, prompts, found, results, reference_only):
    logits, stream, tokens, bf16 = results
    entries = [(f"logits.{index}", array) for index, array in enumerate(logits)]
    entries.append(("stream", stream))
    checkpoint.write_safetensors(
        os.path.join(folder, "golden.safetensors"),
        [(key, "F32", x.shape, x.nbytes, lambda x=x: x) for key, x in entries],
    )
    golden = {
        "fixture": name,
        "seed": seed,
        "golden_from": golden_from[reference_only],
        "made_with": {"numpy": numpy.__version__} if reference_only else peer.versions(),
        "prompts": prompts,
        "main_prompt": len(prompts) - 1,
        "greedy": tokens,
        "bf16_distance": bf16,
        "figures": found,
    }
    checkpoint.write_json(os.path.join(folder, "golden.json"), golden)
    if drafts.names_of([key for key, _, _ in tensors_of(recipe)]):
        drafts.write(folder, prompts[-1])


def make(name, out, first_seed, tries, reference_only):
    recipe = recipes.fixtures[name]
    for seed in range(first_seed, first_seed + tries):
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, name)
            write_model(folder, recipe, seed)
            model = reference.load(folder)
            prompts = make_prompts(model, recipe, seed)
            found = figures(model, prompts, recipe["stop"])
            if recipe["quantise"] and "effects" in found:
                found["effects"]["scales"] = effect_of_scales(folder, model, prompts[-1])
            reasons = refusals(found)
            print(f"{name}: seed {seed}: {'; '.join(reasons) or 'taken'}", flush=True)
            if reasons:
                continue
            if reference_only:
                results = from_reference(model, prompts)
            else:
                results = compare(folder, recipe, model, prompts, found)
            if results is None:
                continue
            write_golden(folder, name, recipe, seed, prompts, found, results, reference_only)
            target = os.path.join(out, name)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            return
    raise SystemExit(f"{name}: no seed of {tries} gives a fixture that passes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=recipes.fixtures, metavar="NAME",
                        help="make this fixture only")
    parser.add_argument("--out", default=default_out, help="folder of the fixtures")
    parser.add_argument("--seed", type=int, default=1, help="first seed to try")
    parser.add_argument("--tries", type=int, default=400, help="seeds to try")
    parser.add_argument("--reference-only", action="store_true",
                        help="without torch and transformers; golden.json says so")
    args = parser.parse_args()
    missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    if missing and not args.reference_only:
        parser.error(f"pip install {' '.join(missing)}; or --reference-only, which needs neither")
    for name in [args.only] if args.only else recipes.fixtures:
        make(name, args.out, args.seed, args.tries, args.reference_only)


if __name__ == "__main__":
    main()
