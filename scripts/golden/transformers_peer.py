"""What transformers computes for a fixture: logits, residual stream, greedy tokens."""

import os
import tempfile

import numpy

from checkpoints import checkpoint_files, quantised_weights
from golden import ling_peer

# model_type -> class of transformers; configs with text_config are read by the class of the text.
classes = {
    "granite": "GraniteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granite_swa": "GraniteSWAForCausalLM",
    "granitemoe_swa": "GraniteMoeSWAForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
    "gemma4": "Gemma4ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma4_unified_text": "Gemma4UnifiedForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "mellum": "MellumForCausalLM",
    "llama": "LlamaForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "bamba": "BambaForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM",
    "jamba": "JambaForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "lfm3": "Lfm3ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "minimax": "MiniMaxForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM",
    "zamba2": "Zamba2ForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
}


def write_peer_folder(folder, recipe, out):
    """The fixture as transformers takes it: with the keys of recipe["peer"] besides, without the
    tensors that recipe["peer_drops"] names, quantised weights dequantised."""
    config = checkpoint_files.read_json(os.path.join(folder, "config.json"))
    if recipe["quantise"]:
        for key in ("quantization_config", "compression_config"):
            config.pop(key, None)
    config.update(recipe["peer"])
    checkpoint_files.write_json(os.path.join(out, "config.json"), config)
    if not recipe["quantise"]:
        for name in os.listdir(folder):
            if name.startswith("model"):
                os.symlink(os.path.join(folder, name), os.path.join(out, name))
        return
    values = quantised_weights.dequantised(checkpoint_files.read_weights(folder))
    entries = []
    for name, value in values.items():
        value = value.astype(numpy.float32)
        entries.append((name, "F32", value.shape, value.nbytes, lambda value=value: value))
    checkpoint_files.write_tensors(out, entries)


def load(folder, dtype):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    config = checkpoint_files.read_json(os.path.join(folder, "config.json"))
    is_ling = config["model_type"] == "bailing_hybrid"
    kind = ling_peer.model_class(config) if is_ling else None
    kind = kind or getattr(transformers, classes[config["model_type"]])
    model, info = kind.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, experts_implementation="eager"
    )
    # MiniMax's numbers that follow from its configuration.
    made = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    info["missing_keys"] = {key for key in info["missing_keys"] if not key.endswith(made)}
    wrong = [key for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]]
    if wrong:
        raise SystemExit(f"{folder}: transformers reports {wrong}: {info}")
    return model.eval()


def residual_stream(model, ids):
    """What enters the first layer and what leaves each, [layers + 1, T, hidden]; of several
    streams, [n, 1, T, hidden], all beside each other."""
    rows = lambda each: each.movedim(0, -2) if each.dim() == 4 else each
    stream = []
    enter = lambda _, args, kwargs: stream.append((args or tuple(kwargs.values()))[0].clone())
    leave = lambda _, __, out: stream.append((out[0] if isinstance(out, tuple) else out).clone())
    base = model.base_model  # of Llama 4 the model itself
    layers = getattr(base, "model", base).layers
    hooks = [layers[0].register_forward_pre_hook(enter, with_kwargs=True)]
    hooks += [layer.register_forward_hook(leave) for layer in layers]
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return numpy.stack([rows(each).reshape(ids.shape[1], -1).float().numpy() for each in stream])


def greedy_tokens(model, prompt, count, whole_passes):
    """Token by token through the cache, with positions, which bamba does not count by itself; from
    the start each time if requested, and where no layer has attention: the cache class
    refuses such models."""
    import torch

    kinds = getattr(model.config, "layer_types", None) or ["full_attention"]
    has_attention = not {"full_attention", "hybrid"}.isdisjoint(kinds)
    cached = has_attention and not whole_passes
    tokens, memory = [], None
    for _ in range(count):
        new = tokens[-1:] if memory else prompt + tokens
        end = len(prompt) + len(tokens)
        places = torch.arange(end - len(new), end).unsqueeze(0)
        out = model(
            torch.tensor([new]), position_ids=places, past_key_values=memory, use_cache=cached
        )
        memory = out.past_key_values if cached else None
        tokens.append(int(out.logits[0, -1].argmax()))
    return tokens


def run(folder, recipe, dtype, prompts, count):
    """Logits per prompt, the residual stream of the last prompt, and greedy tokens after it."""
    import torch

    with tempfile.TemporaryDirectory() as out, torch.no_grad():
        write_peer_folder(folder, recipe, out)
        model = load(out, dtype)
        logits = [model(torch.tensor([each]), use_cache=False).logits[0] for each in prompts]
        stream = residual_stream(model, torch.tensor([prompts[-1]]))
        tokens = greedy_tokens(model, prompts[-1], count, recipe["whole_passes"])
    return [each.float().numpy() for each in logits], stream, tokens


def versions():
    import torch
    import transformers

    modules = (("transformers", transformers), ("torch", torch), ("numpy", numpy))
    return {name: module.__version__ for name, module in modules}
