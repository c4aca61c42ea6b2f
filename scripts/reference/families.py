"""Which family a config.json belongs to, and its plan."""

from reference import (
    plans,
    plans_linear as linear,
    plans_qwen as qwen,
    plans_recurrent as recurrent,
    plans_windows as windows,
)

# model_type -> (plan of a config, default prefix of the tensors, are experts one tensor by default)
families = {
    "granite": (plans.llama, "model.", False),
    "granitemoehybrid": (plans.granite, "model.", True),
    "granite_swa": (windows.granite_swa, "model.", False),
    "granitemoe_swa": (windows.granite_swa, "model.", True),
    "gemma2": (windows.gemma2, "model.", False),
    "gemma3": (windows.gemma3, "model.language_model.", False),
    "gemma3_text": (windows.gemma3, "model.", False),
    "gemma3n": (windows.gemma3n, "model.language_model.", False),
    "gemma3n_text": (windows.gemma3n, "model.", False),
    "gemma4": (windows.gemma4, "model.language_model.", False),
    "gemma4_text": (windows.gemma4, "model.", False),
    "gemma4_unified": (windows.gemma4, "model.language_model.", False),
    "gemma4_unified_text": (windows.gemma4, "model.", False),
    "gpt_oss": (windows.gpt_oss, "model.", True),
    "ministral3": (windows.ministral3, "model.", False),
    "mistral3": (windows.ministral3, "model.language_model.", False),
    "cohere2": (windows.cohere2, "model.", False),
    "llama4": (windows.llama4, "language_model.model.", True),
    "llama4_text": (windows.llama4, "model.", True),
    "mellum": (windows.mellum, "model.", False),
    "llama": (plans.llama, "model.", False),
    "smollm3": (windows.smollm3, "model.", False),
    "qwen2": (plans.llama, "model.", False),
    "qwen3": (qwen.qwen3, "model.", False),
    "qwen3_moe": (qwen.qwen3, "model.", False),
    "nemotron_h": (plans.nemotron, "backbone.", False),
    "bamba": (plans.bamba, "model.", False),
    "falcon_h1": (plans.falcon_h1, "model.", False),
    "mamba": (recurrent.mamba, "backbone.", False),
    "falcon_mamba": (recurrent.mamba, "backbone.", False),
    "jamba": (recurrent.jamba, "model.", False),
    "mamba2": (recurrent.mamba2, "backbone.", False),
    "qwen3_next": (qwen.qwen3_next, "model.", False),
    "qwen3_5": (qwen.qwen3_5, "model.language_model.", False),
    "qwen3_5_text": (qwen.qwen3_5, "model.", False),
    "qwen3_5_moe": (qwen.qwen3_5, "model.language_model.", True),
    "qwen3_5_moe_text": (qwen.qwen3_5, "model.", True),
    "bailing_hybrid": (linear.bailing_hybrid, "model.", False),
    "kimi_linear": (linear.kimi_linear, "model.", False),
    "minimax": (linear.minimax, "model.", False),
    "minimax_text_01": (linear.minimax, "model.", False),
    "olmo_hybrid": (qwen.olmo_hybrid, "model.", False),
    "zamba2": (recurrent.zamba2, "model.", False),
    "lfm2": (qwen.lfm2, "model.", False),
    "lfm2_moe": (qwen.lfm2, "model.", False),
    "lfm3": (windows.lfm3, "model.", False),
}


def text_config(config):
    """The keys of the language model: with text_config, those in it, over the outer ones."""
    inner = config.get("text_config")
    if not inner:
        return config
    outer = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**outer, **inner}


def plan_of(config, prefix=None, fused=None):
    kind = config.get("model_type")
    if kind not in families:
        raise SystemExit(f"model_type: one of {', '.join(families)} expected, found {kind!r}")
    make, own_prefix, own_fused = families[kind]
    prefix = own_prefix if prefix is None else prefix
    return make(text_config(config), prefix, own_fused if fused is None else fused)


def plan_for(config, names):
    """The plan of a model whose files hold tensors of these names: it gives the prefix and how
    experts are stored."""
    ends = ("embed_tokens.weight", "word_embeddings.weight", "embeddings.weight")
    prefix = None
    for name in names:
        for end in ends:
            if prefix is None and name.endswith(end) and not name.startswith("mtp."):
                prefix = name.removesuffix(end)
    is_fused = any(name.endswith("experts.gate_up_proj") for name in names)
    is_granite = config.get("model_type") == "granitemoehybrid"
    return plan_of(config, prefix, is_fused or is_granite)
