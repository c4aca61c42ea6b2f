"""As published_configs.py: checkpoints of Bamba and of purely recurrent families."""

bambas = {
    "bamba-9b": {
        "model_type": "bamba",
        "architectures": ["BambaForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "attn_layer_indices": [9, 18, 27],
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "mamba_n_heads": 128,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 128,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 256,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "intermediate_size": 14336,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    }
}

configs = {
    "mamba-codestral-7b": {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 64,
        "num_heads": 128,
        "head_dim": 64,
        "n_groups": 8,
        "state_size": 128,
        "conv_kernel": 4,
        "expand": 2,
        "chunk_size": 256,
        "use_conv_bias": True,
        "use_bias": False,
        "rms_norm": True,
        "norm_before_gate": True,
        "residual_in_fp32": True,
        "time_step_limit": [0.0, float("inf")],
        "hidden_act": "silu",
        "layer_norm_epsilon": 1e-05,
        "tie_word_embeddings": False,
        "vocab_size": 32768,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
}

# Billions of parameters, MiB of state in f32 and in bf16, KV bytes.
figures = {
    "mamba-codestral-7b": (7.29, 259.8, 131.8, 0),
}
