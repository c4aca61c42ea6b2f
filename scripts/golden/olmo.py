"""The golden fixtures of the olmo_hybrid family."""

from golden.recipe import recipe

linear, full = "linear_attention", "full_attention"

# As published: no rope_parameters, and no positions for that reason.
published = {
    "architectures": ["OlmoHybridForCausalLM"],
    "model_type": "olmo_hybrid",
    "attention_bias": False,
    "bos_token_id": 3,
    "dtype": "bfloat16",
    "eos_token_id": 5,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 56,
    "layer_types": [linear, linear, linear, full],
    "linear_allow_neg_eigval": True,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 12,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 3,
    "linear_value_head_dim": 24,
    "max_position_embeddings": 512,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_theta": None,
    "tie_word_embeddings": False,
    "vocab_size": 131,
}

# Positions, more value heads than key heads, beta of at most 1.
odd = {
    **published,
    "hidden_size": 44,
    "intermediate_size": 45,
    "layer_types": [linear, full, linear],
    "linear_allow_neg_eigval": False,
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 9,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 22,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    "tie_word_embeddings": True,
    "vocab_size": 137,
}
del odd["rope_theta"]

fixtures = {
    "olmo-hybrid": recipe(published, lengths=(1, 3, 4, 17, 33, 67)),
    "olmo-hybrid-odd": recipe(odd, lengths=(1, 2, 3, 16, 33), shards=2),
}
