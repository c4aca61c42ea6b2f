"""The golden fixtures of the bailing_hybrid family, in its two forms."""

from golden.recipe import recipe

# What both forms have.
common = {
    "model_type": "bailing_hybrid",
    "dtype": "bfloat16",
    "eos_token_id": 5,
    "first_k_dense_replace": 1,
    "head_dim": 12,
    "hidden_act": "silu",
    "hidden_size": 40,
    "intermediate_size": 56,
    "kv_lora_rank": 24,
    "max_position_embeddings": 512,
    "moe_intermediate_size": 20,
    "moe_router_enable_expert_bias": True,
    "n_group": 2,
    "norm_topk_prob": True,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_shared_experts": 1,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "rms_norm_eps": 1e-06,
    "rope_interleave": True,
    "rope_theta": 6000,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "v_head_dim": 16,
    "vocab_size": 131,
}

delta = {
    **common,
    "architectures": ["BailingMoeV3ForCausalLM"],
    "gated_attention_proj_granularity_type": "head_wise",
    "group_norm_size": 1,
    "kda_lower_bound": -5.0,
    "kda_safe_gate": True,
    "layer_group_size": 2,
    "moe_shared_expert_intermediate_size": 20,
    "no_kda_lora": True,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "q_lora_rank": 20,
    "short_conv_kernel_size": 4,
}

# As transformers writes it, odd sizes, another floor, limits of gates and ups, one of shared
# experts alone.
delta_odd = {
    **delta,
    "expert_swiglu_limit_list": [0, 0, 0.4],
    "head_dim": 9,
    "hidden_size": 37,
    "intermediate_size": 45,
    "kda_lower_bound": -2.5,
    "kv_lora_rank": 19,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "moe_intermediate_size": 11,
    "moe_shared_expert_intermediate_size": 11,
    "norm_topk_prob": False,
    "num_attention_heads": 5,
    "num_experts": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 5,
    "num_shared_experts": 2,
    "q_lora_rank": None,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "rope_theta": 900,
    "routed_scaling_factor": 1.5,
    "share_expert_swiglu_limit_list": [0, 0.5, 0.3],
    "short_conv_kernel_size": 3,
    "v_head_dim": 7,
    "vocab_size": 137,
}

lightning = {
    **common,
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    "group_norm_size": 2,
    "layer_group_size": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 20,
}

# Rope of latents by halves, heads in one group of the norm.
lightning_odd = {
    **lightning,
    "group_norm_size": 1,
    "head_dim": 10,
    "hidden_size": 33,
    "intermediate_size": 45,
    "kv_lora_rank": 19,
    "layer_group_size": 3,
    "moe_intermediate_size": 11,
    "num_attention_heads": 2,
    "num_experts": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.6,
    "q_lora_rank": None,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "rope_interleave": False,
    "rope_theta": 900,
    "v_head_dim": 7,
    "vocab_size": 137,
}

fixtures = {
    "bailing-delta": recipe(delta, lengths=(1, 3, 17, 33)),
    "bailing-delta-odd": recipe(delta_odd, lengths=(1, 2, 16, 33), shards=2),
    "bailing-lightning": recipe(lightning, lengths=(1, 3, 17, 33), whole_passes=True),
    "bailing-lightning-odd": recipe(
        lightning_odd, lengths=(1, 2, 16, 33), shards=2, whole_passes=True
    ),
}
