"""The golden fixtures of the lfm3 family."""

from golden.recipe import recipe

conv, full, sliding = "conv", "full_attention", "sliding_attention"

# Of the default layer_types, and with all options on.
usual = {
    "architectures": ["Lfm3ForCausalLM"],
    "model_type": "lfm3",
    "bos_token_id": 1,
    "conv_L_cache": 7,
    "conv_bias": False,
    "dtype": "bfloat16",
    "eos_token_id": 7,
    "head_dim": 16,
    "hidden_size": 48,
    "initializer_range": 0.02,
    "intermediate_size": 56,
    "max_position_embeddings": 512,
    "norm_eps": 1e-05,
    "num_attention_heads": 8,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rope_parameters": {
        full: {"partial_rotary_factor": 0.5, "rope_theta": 300.0, "rope_type": "proportional"},
        sliding: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 9,
    "tie_word_embeddings": True,
    "use_attention_gate": True,
    "use_cache": True,
    "use_sandwich_norm": True,
    "vocab_size": 131,
}

odd = {
    **usual,
    "conv_L_cache": 4,
    "head_dim": 22,
    "hidden_size": 50,
    "intermediate_size": 43,
    "layer_types": [sliding, conv, full, sliding],
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "rope_parameters": {
        full: {"rope_theta": 20000.0, "rope_type": "default"},
        sliding: {"rope_theta": 300.0, "rope_type": "proportional", "partial_rotary_factor": 0.6},
    },
    "sliding_window": 19,
    "tie_word_embeddings": False,
    "use_attention_gate": False,
    "use_sandwich_norm": False,
    "vocab_size": 137,
}

# Gates without norms after the parts; rows of 3 gates, and no windows.
gates = {
    **odd,
    "conv_L_cache": 7,
    "layer_types": [conv, full, conv],
    "num_hidden_layers": 3,
    "use_attention_gate": True,
}

fixtures = {
    "lfm3": recipe(usual, lengths=(1, 7, 9, 10, 33)),
    "lfm3-odd": recipe(odd, lengths=(1, 19, 20, 61), shards=2),
    "lfm3-gates": recipe(gates, lengths=(1, 6, 7, 33)),
}
