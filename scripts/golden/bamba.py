"""The golden fixtures of the bamba family."""

from golden.recipe import recipe

# As published: no key says that rope rotates half of the dimensions.
common = {
    "architectures": ["BambaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_layer_indices": [1],
    "bos_token_id": 3,
    "eos_token_id": 5,
    "hidden_act": "silu",
    "hidden_size": 40,
    "initializer_range": 0.02,
    "intermediate_size": 56,
    "mamba_chunk_size": 16,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 20,
    "mamba_d_state": 24,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 4,
    "mamba_proj_bias": False,
    "max_position_embeddings": 512,
    "model_type": "bamba",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_logits_to_keep": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 131,
}

first = {
    **common,
    "bos_token_id": 271,
    "eos_token_id": 272,
    "mamba_d_head": "auto",
    "mamba_d_state": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 273,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "vocab_size": 274,
}

second = {
    **common,
    "attn_layer_indices": [0, 3],
    "dtype": "bfloat16",
    "mamba_d_head": 20,
    "mamba_n_groups": 2,
    "mamba_n_heads": 4,
    "num_attention_heads": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "rope_parameters": {
        "partial_rotary_factor": 0.5,
        "rope_theta": 50000.0,
        "rope_type": "default",
    },
    "time_step_limit": [0.0, float("inf")],
}

odd = {
    **common,
    "attn_layer_indices": [2],
    "hidden_size": 36,
    "intermediate_size": 45,
    "mamba_chunk_size": 8,
    "mamba_conv_bias": False,
    "mamba_d_conv": 3,
    "mamba_d_head": 12,
    "mamba_d_state": 19,
    "mamba_expand": 3,
    "mamba_n_heads": 9,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 157,
}

# One step at a time transformers has no limits, only over whole prompts.
limits = {
    **common,
    "attn_layer_indices": [1],
    "mamba_d_state": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rope_theta": 10000.0,
    "time_step_limit": [0.15, 0.7],
    "torch_dtype": "bfloat16",
    "vocab_size": 113,
}

fixtures = {
    "bamba-1": recipe(first, lengths=(1, 3, 4, 33), tokenizer="bamba"),
    "bamba-2": recipe(second, lengths=(1, 4, 15, 17, 33)),
    "bamba-limits": recipe(limits, lengths=(1, 3, 17, 33), whole_passes=True),
    "bamba-odd": recipe(odd, lengths=(1, 2, 3, 9, 33), shards=2),
}
