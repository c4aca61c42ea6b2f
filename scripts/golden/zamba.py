"""The golden fixtures of the zamba2 family."""

from golden.recipe import recipe

mamba, hybrid = "mamba", "hybrid"

# As published, with the keys that no engine reads. Two blocks, three layers that use them.
zamba2 = {
    "architectures": ["Zamba2ForCausalLM"],
    "adapter_rank": 6,
    "add_bias_linear": False,
    "attention_dropout": 0.0,
    "attention_head_dim": 20,
    "attention_hidden_size": 80,
    "bos_token_id": 1,
    "chunk_size": 16,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_size": 40,
    "hybrid_layer_ids": [1, 3, 4],
    "initializer_range": 0.02,
    "intermediate_size": 56,
    "kv_channels": 10,
    "layers_block_type": [mamba, hybrid, mamba, hybrid, hybrid],
    "mamba_d_conv": 4,
    "mamba_d_state": 24,
    "mamba_expand": 2,
    "mamba_headdim": 20,
    "mamba_ngroups": 2,
    "max_position_embeddings": 512,
    "model_type": "zamba2",
    "n_mamba_heads": 4,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "num_logits_to_keep": 1,
    "num_mem_blocks": 2,
    "num_query_groups": 4,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000,
    "time_step_floor": 0.0001,
    "time_step_limit": None,
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_conv_bias": True,
    "use_long_context": False,
    "use_mamba_kernels": True,
    "use_mem_eff_path": False,
    "use_mem_rope": True,
    "use_shared_attention_adapter": False,
    "use_shared_mlp_adapter": True,
    "vocab_size": 131,
}

# One block, adapters of q, k and v too, no positions; odd sizes.
odd = {
    **zamba2,
    "adapter_rank": 7,
    "attention_head_dim": 22,
    "attention_hidden_size": 66,
    "hidden_size": 33,
    "hybrid_layer_ids": [0, 2],
    "intermediate_size": 45,
    "kv_channels": 11,
    "layers_block_type": [hybrid, mamba, hybrid],
    "mamba_d_conv": 3,
    "mamba_d_state": 19,
    "mamba_expand": 3,
    "mamba_headdim": 11,
    "mamba_ngroups": 3,
    "n_mamba_heads": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 3,
    "num_mem_blocks": 1,
    "num_query_groups": 3,
    "rms_norm_eps": 1e-03,
    "use_mem_rope": False,
    "use_shared_attention_adapter": True,
    "vocab_size": 157,
}

# Keys that fewer heads have, more blocks than are used twice; keys of the newest transformers.
groups = {
    "architectures": ["Zamba2ForCausalLM"],
    "adapter_rank": 5,
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_size": 36,
    "layers_block_type": ["linear_attention", hybrid, hybrid, hybrid, hybrid],
    "mamba_d_state": 16,
    "model_type": "zamba2",
    "n_mamba_heads": 6,
    "num_attention_heads": 6,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "num_mem_blocks": 3,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "use_long_context": True,
    "use_mem_rope": True,
    "vocab_size": 137,
}

# Small adapters, as scores are no larger then than usual: large ones round more.
ends = [f"adapter_list.{use}.1.weight" for use in range(2)]
small = {"kinds": dict.fromkeys(ends, "embedding")}

# transformers clamps dt of prompts by time_step_min, though not that of the tokens after them.
own = {"peer": {"time_step_min": 1e-30}}
fixtures = {
    "zamba2": recipe(zamba2, lengths=(1, 3, 4, 17, 33), **own),
    "zamba2-odd": recipe(odd, lengths=(1, 2, 3, 9, 33), shards=2, **own, **small),
    "zamba2-groups": recipe(groups, lengths=(1, 3, 4, 17, 33), **own),
}
