#!/usr/bin/env python3
"""Make the golden fixtures under tests/golden: tiny models, and what transformers says about them.

Each fixture is a model folder as Hugging Face publishes them, golden.json and golden.safetensors;
tests/golden/README.md describes them. Seeds are tried in order until the model passes every check
(`refusals`), so the result depends on this file and the package versions alone.
Needs numpy, torch and transformers (and tokenizers, for the fixture with a tokenizer).
"""

import argparse
import os
import shutil
import tempfile

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the order of sums, and so the last bits, hang on it
os.environ["OMP_NUM_THREADS"] = "1"

import numpy

import golden_fixtures
import granite_checkpoint as checkpoint
import reference_granite as reference

default_out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
greedy_count = 64
least_effect = 1e-2
least_distinct = 24
least_margin = 1e-3
least_router_gap = 3e-4
largest_difference = 1e-5


def terms_of(config):
    """The terms that this config has: term -> layers in which it acts (None: the whole model)."""
    g = checkpoint.geometry(config)
    layers = {kind: [i for i, k in enumerate(g.layer_types) if k == kind] for kind in g.layer_types}
    recurrent, softmax = layers.get("mamba", []), layers.get("attention", [])
    found = {"embedding_multiplier": [None], "residual_multiplier": [None]}
    found["logits_scaling"] = [None]
    found["shared_mlp"] = found["norm_weights"] = range(len(g.layer_types))
    for term in ("state", "decay", "conv", "skip", "dt_bias", "gate", "gated_norm_weight"):
        found[term] = recurrent
    found["conv_bias"] = recurrent if g.conv_bias else []
    if g.groups > 1:
        found["gated_norm_groups"] = found["ssd_groups"] = recurrent
    found["past"] = softmax
    found["attention_multiplier"] = [None] if softmax else []
    found["rope"] = softmax if config["position_embedding_type"] == "rope" else []
    if g.experts:
        found["experts"] = found["router_weights"] = range(len(g.layer_types))
        if g.top_k < g.experts:
            found["router_choice"] = range(len(g.layer_types))
    return {term: list(where) for term, where in found.items() if len(where)}


def relative(difference, logits):
    return float(numpy.abs(difference).max() / numpy.abs(logits).max())


def effects(model, prompt, logits):
    """How far each term moves the logits: switched off everywhere, and in its weakest layer."""
    found = {}
    for term, layers in terms_of(model.config).items():
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


def make_prompts(config, lengths, seed):
    rng = numpy.random.Generator(numpy.random.PCG64([seed, 1]))
    stop = {config["eos_token_id"], config["pad_token_id"]}
    allowed = [token for token in range(config["vocab_size"]) if token not in stop]
    return [[int(token) for token in rng.choice(allowed, length)] for length in lengths]


def figures(model, prompts):
    """What the float64 reference says about a candidate, cheapest checks first."""
    found = {}
    main = prompts[-1]
    tokens, rows = model.greedy(main, greedy_count)
    found["distinct_greedy_tokens"] = len(set(tokens))
    found["stop_tokens_in_greedy"] = tokens.count(model.config["eos_token_id"])
    per_prompt = [model.forward(prompt)[0] for prompt in prompts]
    found["smallest_margin"] = min(margin(rows), min(margin(each) for each in per_prompt))
    if model.shape.experts > model.shape.top_k:
        found["smallest_router_gap"] = float(model.router_gap)
    if not refusals(found):
        found["effects"] = effects(model, main, per_prompt[-1])
    return found


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
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    generation = {"_from_model_config": True, **{key: config[key] for key in keys}}
    checkpoint.write_json(os.path.join(folder, "generation_config.json"), generation)
    if recipe["shards"] > 1:
        sizes = [numpy.prod(shape) for _, shape, _ in tensors_of(config)]
        limit = 2 * int(sum(sizes)) // recipe["shards"] + 2 * int(max(sizes))
        checkpoint.write_weights(folder, config, seed, limit)
    else:
        checkpoint.write_weights(folder, config, seed)
    if recipe["tokenizer"]:
        import granite_tokenizer

        granite_tokenizer.write_tiny(folder, config)


def tensors_of(config):
    return list(checkpoint.tensor_table(checkpoint.geometry(config)))


def load_transformers(folder, dtype):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    kind = transformers.GraniteMoeHybridForCausalLM
    model, info = kind.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, experts_implementation="eager"
    )
    wrong = [key for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]]
    if wrong:
        raise SystemExit(f"{folder}: transformers reports {wrong}: {info}")
    return model.eval()


def residual_stream(model, ids):
    """What enters the first layer and what leaves each, [layers + 1, T, hidden]."""
    stream = []
    enter = lambda _, args, kwargs: stream.append((args or tuple(kwargs.values()))[0].clone())
    leave = lambda _, __, out: stream.append((out[0] if isinstance(out, tuple) else out).clone())
    hooks = [model.model.layers[0].register_forward_pre_hook(enter, with_kwargs=True)]
    hooks += [layer.register_forward_hook(leave) for layer in model.model.layers]
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return numpy.stack([each.reshape(ids.shape[1], -1).float().numpy() for each in stream])


def greedy_tokens(model, prompt, count):
    """Token by token through the cache; from the start each time where no layer has attention,
    because the cache class of transformers refuses such models."""
    import torch

    cached = "full_attention" in model.config.layer_types
    tokens, memory = [], None
    for _ in range(count):
        new = tokens[-1:] if memory else prompt + tokens
        out = model(torch.tensor([new]), past_key_values=memory, use_cache=cached)
        memory = out.past_key_values if cached else None
        tokens.append(int(out.logits[0, -1].argmax()))
    return tokens


def run_transformers(folder, dtype, prompts, count):
    """Logits per prompt, the residual stream of the last prompt, and greedy tokens after it."""
    import torch

    model = load_transformers(folder, dtype)
    with torch.no_grad():
        logits = [model(torch.tensor([each]), use_cache=False).logits[0] for each in prompts]
        stream = residual_stream(model, torch.tensor([prompts[-1]]))
        tokens = greedy_tokens(model, prompts[-1], count)
    return [each.float().numpy() for each in logits], stream, tokens


def distance(found, expected):
    """Largest and root-mean-square difference over all rows, over the largest logit."""
    largest = max(float(numpy.abs(each).max()) for each in expected)
    gap = numpy.concatenate([(x - y).ravel() for x, y in zip(found, expected)]).astype(float)
    rms = (gap**2).mean() ** 0.5
    return {"max": float(numpy.abs(gap).max() / largest), "rms": float(rms / largest)}


def compare(folder, model, prompts, found):
    """Run transformers in f32 and bf16; refuse where it and the reference disagree."""
    import torch

    logits, stream, tokens = run_transformers(folder, torch.float32, prompts, greedy_count)
    own = [model.forward(prompt) for prompt in prompts]
    found["transformers_f32_to_reference"] = distance(logits, [each[0] for each in own])
    found["stream_to_reference"] = relative(stream - own[-1][1], own[-1][1])
    reference_tokens = model.greedy(prompts[-1], greedy_count)[0]
    if found["transformers_f32_to_reference"]["max"] > largest_difference:
        raise SystemExit(f"{folder}: reference and transformers differ: {found}")
    if tokens != reference_tokens:
        raise SystemExit(f"{folder}: greedy tokens differ: {tokens} {reference_tokens}")
    rounded, _, rounded_tokens = run_transformers(folder, torch.bfloat16, prompts, greedy_count)
    found["bf16_greedy_tokens_equal"] = sum(x == y for x, y in zip(rounded_tokens, tokens))
    return logits, stream, tokens, distance(rounded, logits)


def versions():
    import torch
    import transformers

    modules = (("transformers", transformers), ("torch", torch), ("numpy", numpy))
    return {name: module.__version__ for name, module in modules}


def write_golden(folder, name, seed, prompts, found, results):
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
        "made_with": versions(),
        "prompts": prompts,
        "main_prompt": len(prompts) - 1,
        "greedy": tokens,
        "bf16_distance": bf16,
        "figures": found,
    }
    checkpoint.write_json(os.path.join(folder, "golden.json"), golden)


def make(name, out, first_seed, tries):
    recipe = golden_fixtures.fixtures[name]
    for seed in range(first_seed, first_seed + tries):
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, name)
            write_model(folder, recipe, seed)
            model = reference.load(folder)
            prompts = make_prompts(recipe["config"], recipe["lengths"], seed)
            found = figures(model, prompts)
            reasons = refusals(found)
            print(f"{name}: seed {seed}: {'; '.join(reasons) or 'taken'}", flush=True)
            if reasons:
                continue
            results = compare(folder, model, prompts, found)
            write_golden(folder, name, seed, prompts, found, results)
            target = os.path.join(out, name)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            return
    raise SystemExit(f"{name}: no seed of {tries} gives a fixture that passes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=golden_fixtures.fixtures, help="make this fixture only")
    parser.add_argument("--out", default=default_out, help="folder of the fixtures")
    parser.add_argument("--seed", type=int, default=1, help="first seed to try")
    parser.add_argument("--tries", type=int, default=400, help="seeds to try")
    args = parser.parse_args()
    for name in [args.only] if args.only else golden_fixtures.fixtures:
        make(name, args.out, args.seed, args.tries)


if __name__ == "__main__":
    main()
