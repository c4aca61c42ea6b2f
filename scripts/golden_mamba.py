"""The golden fixtures of the pure recurrent families: mamba2."""

from golden_recipe import recipe

# As published, with the keys that no engine reads.
mamba2 = {
    "architectures": ["Mamba2ForCausalLM"],
    "bos_token_id": 0,
    "chunk_size": 16,
    "conv_kernel": 4,
    "eos_token_id": 0,
    "expand": 2,
    "head_dim": 20,
    "hidden_act": "silu",
    "hidden_size": 40,
    "initializer_range": 0.1,
    "intermediate_size": 80,
    "layer_norm_epsilon": 1e-05,
    "model_type": "mamba2",
    "n_groups": 2,
    "norm_before_gate": True,
    "num_heads": 4,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "rescale_prenorm_residual": False,
    "residual_in_fp32": True,
    "rms_norm": True,
    "state_size": 24,
    "tie_word_embeddings": False,
    "time_step_floor": 0.0001,
    "time_step_limit": [0.0, float("inf")],
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "time_step_rank": 3,
    "torch_dtype": "bfloat16",
    "use_bias": False,
    "use_cache": True,
    "use_conv_bias": True,
    "vocab_size": 131,
}

mamba2_odd = {
    **mamba2,
    "chunk_size": 8,
    "conv_kernel": 3,
    "expand": 3,
    "head_dim": 12,
    "hidden_size": 36,
    "n_groups": 3,
    "num_heads": 9,
    "num_hidden_layers": 3,
    "residual_in_fp32": False,
    "state_size": 19,
    "tie_word_embeddings": True,
    "time_step_limit": [0.15, 0.7],
    "use_conv_bias": False,
    "vocab_size": 157,
}

fixtures = {
    "mamba2": recipe(mamba2, lengths=(1, 3, 4, 17, 33)),
    "mamba2-odd": recipe(mamba2_odd, lengths=(1, 2, 3, 9, 33), shards=2),
}
