"""The golden fixtures of the falcon_h1 family."""

from golden.recipe import recipe

# As published, in the spellings of transformers 4; every multiplier is another number.
common = {
    "architectures": ["FalconH1ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_in_multiplier": 1.25,
    "attention_out_multiplier": 0.8,
    "bos_token_id": 1,
    "embedding_multiplier": 1.75,
    "eos_token_id": 11,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 40,
    "initializer_range": 0.02,
    "intermediate_size": 56,
    "key_multiplier": 1.5,
    "lm_head_multiplier": 0.6,
    "mamba_chunk_size": 16,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 12,
    "mamba_d_ssm": 48,
    "mamba_d_state": 24,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 4,
    "mamba_norm_before_gate": False,
    "mamba_proj_bias": False,
    "mamba_rms_norm": True,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "mlp_multipliers": [1.6, 0.7],
    "model_type": "falcon_h1",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_logits_to_keep": 1,
    "pad_token_id": 0,
    "projectors_bias": False,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 100000000000.0,
    "ssm_in_multiplier": 1.3,
    "ssm_multipliers": [1.5, 0.7, 1.4, 0.6, 1.7],
    "ssm_out_multiplier": 0.75,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 131,
}

# Without a norm, as the smallest published ones: the gate alone. Sizes that divide by little.
plain = {
    **common,
    "head_dim": 14,
    "hidden_size": 36,
    "intermediate_size": 45,
    "mamba_chunk_size": 8,
    "mamba_conv_bias": False,
    "mamba_d_conv": 3,
    "mamba_d_head": "auto",
    "mamba_d_ssm": None,
    "mamba_d_state": 19,
    "mamba_n_heads": 8,
    "mamba_rms_norm": False,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
    "vocab_size": 157,
}

# The norm before the gate, in groups; spellings of transformers 5.
groups = {
    **common,
    "dtype": "bfloat16",
    "mamba_d_head": 10,
    "mamba_d_ssm": 60,
    "mamba_d_state": 16,
    "mamba_n_groups": 3,
    "mamba_n_heads": 6,
    "mamba_norm_before_gate": True,
    "num_hidden_layers": 2,
    "rope_parameters": {"rope_theta": 50000.0, "rope_type": "default"},
    "time_step_limit": [0.0, float("inf")],
}
for key in ("rope_scaling", "rope_theta", "torch_dtype"):
    del groups[key]

fixtures = {
    "falcon-h1-norm": recipe(common, lengths=(1, 3, 4, 15, 17, 33)),
    "falcon-h1-plain": recipe(plain, lengths=(1, 2, 3, 9, 33), shards=2),
    "falcon-h1-groups": recipe(groups, lengths=(1, 4, 15, 17, 33)),
}
