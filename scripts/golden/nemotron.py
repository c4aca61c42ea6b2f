"""The golden fixtures of the nemotron_h family."""

from golden.recipe import recipe
from reference.families import plan_of

infinity = float("inf")

# As published, also keys to be ignored: `expand`, the rope keys, time_step_min and its like.
common = {
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "chunk_size": 16,
    "conv_kernel": 4,
    "eos_token_id": 2,
    "expand": 2,
    "hidden_size": 36,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "mamba_hidden_act": "silu",
    "mamba_proj_bias": False,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
    "n_groups": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "residual_in_fp32": False,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000,
    "partial_rotary_factor": 1.0,
    "sliding_window": None,
    "ssm_state_size": 20,
    "tie_word_embeddings": False,
    "time_step_floor": 0.0001,
    "time_step_limit": [0.0, infinity],
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "use_bias": False,
    "use_conv_bias": True,
}

experts = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 18,
    "moe_shared_expert_intermediate_size": 27,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "mamba_ssm_cache_dtype": "float32",
}

lengths = (1, 3, 5, 17, 33)


def config_of(pattern, **keys):
    return {**common, "hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern), **keys}


def mtp_tensors(config):
    """Of the layers that draft tokens, attention and MoE; reference/drafts.py says what they
    draft."""
    hidden = config["hidden_size"]
    draft = {key: value for key, value in config.items() if key != "layers_block_type"}
    draft["hybrid_override_pattern"] = "*E"
    yield "mtp.layers.0.enorm.weight", (hidden,), "norm"
    yield "mtp.layers.0.hnorm.weight", (hidden,), "norm"
    yield "mtp.layers.0.eh_proj.weight", (hidden, 2 * hidden), "linear"
    yield from plan_of(draft, "mtp.").layer_tensors()
    yield "mtp.layers.1.final_layernorm.weight", (hidden,), "norm"


dense = config_of(
    "M-M*M-",
    attention_head_dim=20,
    intermediate_size=56,
    mamba_head_dim=20,
    mamba_num_heads=4,
    torch_dtype="bfloat16",
    vocab_size=288,
    eos_token_id=12,
)

moe = config_of(
    "MEM*E",
    **experts,
    head_dim=16,
    hidden_size=32,
    intermediate_size=20,
    mamba_head_dim=16,
    mamba_num_heads=6,
    num_key_value_heads=1,
    num_nextn_predict_layers=1,
    mtp_hybrid_override_pattern="*E",
    torch_dtype="bfloat16",
    vocab_size=293,
)

latent = {
    **common,
    **experts,
    "dtype": "bfloat16",
    "head_dim": 20,
    "hidden_size": 36,
    "layers_block_type": ["mamba", "moe", "mamba", "attention", "moe", "mlp"],
    "intermediate_size": 30,
    "mamba_head_dim": 15,
    "mamba_num_heads": 6,
    "n_groups": 3,
    "moe_intermediate_size": 18,
    "moe_latent_size": 24,
    "n_group": 2,
    "n_routed_experts": 8,
    "num_nextn_predict_layers": 1,
    "mtp_layers_block_type": ["attention", "moe"],
    "routed_scaling_factor": 5.0,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 6,
    "vocab_size": 131,
}

# Two groups of three, odd sizes, three taps without a bias, weights as the router gives them.
grouped = config_of(
    "E*ME",
    **{**experts, "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    head_dim=12,
    hidden_size=38,
    intermediate_size=20,
    mamba_head_dim=18,
    mamba_num_heads=5,
    num_attention_heads=6,
    num_key_value_heads=3,
    use_conv_bias=False,
    conv_kernel=3,
    torch_dtype="bfloat16",
    vocab_size=127,
)
grouped.update(n_groups=1, n_routed_experts=9, n_group=3, topk_group=2, num_experts_per_tok=4)

fixtures = {
    "nemotron-dense": recipe(
        dense,
        lengths=(1, 3, 4, 33),
        tokenizer="nemotron2",
        generation={"eos_token_id": [2, 12]},
        peer={"head_dim": 20},
    ),
    "nemotron-moe": recipe(
        moe,
        lengths=(1, 3, 5, 33),
        shards=2,
        tokenizer="nemotron3",
        generation={"eos_token_id": [2, 11]},
        extra=tuple(mtp_tensors(moe)),
    ),
    "nemotron-latent": recipe(
        latent,
        lengths=(1, 2, 3, 15, 16, 33),
        prefix="model.",
        kinds={"mixer.gate.weight": "linear"},
        extra=tuple(mtp_tensors(latent)),
    ),
    "nemotron-grouped": recipe(grouped, lengths=lengths),
}
