"""The golden fixtures of the kimi_linear family."""

from golden.recipe import recipe

# As published: layers are counted from 1.
usual = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "bos_token_id": 3,
    "dtype": "bfloat16",
    "eos_token_id": 5,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 40,
    "intermediate_size": 56,
    "kv_lora_rank": 24,
    "linear_attn_config": {
        "full_attn_layers": [2, 4],
        "head_dim": 12,
        "kda_layers": [1, 3],
        "num_heads": 3,
        "short_conv_kernel_size": 4,
    },
    "mla_use_nope": True,
    "model_max_length": 512,
    "moe_intermediate_size": 20,
    "moe_layer_freq": 1,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "num_attention_heads": 3,
    "num_expert_group": 1,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "num_shared_experts": 1,
    "pad_token_id": 0,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "rms_norm_eps": 1e-05,
    "routed_scaling_factor": 2.446,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_grouped_topk": True,
    "v_head_dim": 16,
    "vocab_size": 131,
}

# Queries by a norm, groups of experts, two shared ones, odd sizes.
odd = {
    **usual,
    "hidden_size": 37,
    "intermediate_size": 45,
    "kv_lora_rank": 19,
    "linear_attn_config": {
        "full_attn_layers": [2],
        "head_dim": 9,
        "kda_layers": [1, 3],
        "num_heads": 2,
        "short_conv_kernel_size": 3,
    },
    "moe_intermediate_size": 11,
    "moe_renormalize": False,
    "num_attention_heads": 5,
    "num_expert_group": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 5,
    "num_shared_experts": 2,
    "q_lora_rank": 21,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "routed_scaling_factor": 1.5,
    "v_head_dim": 7,
    "vocab_size": 137,
}

fixtures = {
    "kimi-linear": recipe(usual, lengths=(1, 3, 17, 33)),
    "kimi-linear-odd": recipe(odd, lengths=(1, 2, 16, 33), shards=2),
}
