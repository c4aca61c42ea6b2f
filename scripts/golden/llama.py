"""The golden fixtures of the llama, granite, qwen2, qwen3, qwen3_moe and smollm3 families."""

from golden.recipe import recipe

common = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 48,
    "initializer_range": 0.02,
    "intermediate_size": 56,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 151,
}

# As Llama 3.1 and 3.2 are published, with a context that short prompts leave.
llama3 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    **common,
    "head_dim": 16,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    },
    "rope_theta": 500.0,
}

# As older files are: no head_dim, every head has keys of its own.
old = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    **common,
    "hidden_size": 42,
    "intermediate_size": 61,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 139,
}

linear = {
    **llama3,
    "head_dim": 10,
    "rope_scaling": None,
    "rope_parameters": {"factor": 2.5, "rope_theta": 10000.0, "rope_type": "linear"},
}
del linear["rope_scaling"], linear["rope_theta"]

granite = {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    **common,
    "attention_multiplier": 0.35,
    "embedding_multiplier": 1.25,
    "logits_scaling": 0.9,
    "mlp_bias": False,
    "residual_multiplier": 0.85,
    "rope_scaling": None,
    "rope_theta": 10000000.0,
}

granite_odd = {
    **granite,
    "attention_multiplier": 0.2,
    "embedding_multiplier": 2,
    "hidden_size": 60,
    "intermediate_size": 41,
    "logits_scaling": 1.25,
    "num_attention_heads": 6,
    "num_hidden_layers": 5,
    "num_key_value_heads": 1,
    "residual_multiplier": 0.7,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": 163,
}
del granite_odd["rope_scaling"], granite_odd["rope_theta"]

# As Qwen 2.5 is published: without head_dim and attention_bias, as the larger ones with a head.
qwen2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    **common,
    "hidden_size": 40,
    "max_window_layers": 3,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 512,
    "tie_word_embeddings": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
del qwen2["attention_bias"]

qwen = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    **common,
    "head_dim": 16,
    "max_window_layers": 3,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "use_sliding_window": False,
}

qwen_odd = {
    **qwen,
    "dtype": "bfloat16",
    "head_dim": 22,
    "hidden_size": 40,
    "intermediate_size": 37,
    "layer_types": ["full_attention"] * 4,
    "num_attention_heads": 5,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
}
del qwen_odd["rope_scaling"], qwen_odd["rope_theta"]

qwen_moe = {
    **qwen,
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}

# Without head_dim, which the class then takes from the width; experts in every second layer.
qwen_moe_mixed = {
    **qwen_moe,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [1],
    "moe_intermediate_size": 13,
    "norm_topk_prob": False,
    "num_attention_heads": 3,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
}
del qwen_moe_mixed["head_dim"]

# Windows of less and of more than a page, from a layer on or as layer_types says.
qwen_windows = {
    **qwen,
    "max_window_layers": 1,
    "num_hidden_layers": 3,
    "sliding_window": 5,
    "use_sliding_window": True,
}
qwen_windows_odd = {
    **qwen_odd,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 23,
    "use_sliding_window": True,
}

# As SmolLM3 3B is published: every fourth layer has no positions, none has a window.
smollm3 = {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    **common,
    "layer_types": ["full_attention"] * 5,
    "max_window_layers": 28,
    "mlp_bias": False,
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0, 1],
    "num_hidden_layers": 5,
    "pad_token_id": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 5000000.0,
    "sliding_window": None,
    "use_sliding_window": False,
}

# By the interval alone, with windows where there are no positions.
smollm3_windows = {
    **smollm3,
    "head_dim": 14,
    "hidden_size": 42,
    "intermediate_size": 37,
    "no_rope_layer_interval": 2,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "rope_parameters": {"rope_theta": 3000.0, "rope_type": "default"},
    "sliding_window": 19,
    "tie_word_embeddings": False,
    "use_sliding_window": True,
}
for key in ("layer_types", "no_rope_layers", "rope_scaling", "rope_theta"):
    del smollm3_windows[key]

fixtures = {
    "llama-3": recipe(llama3, lengths=(1, 3, 16, 17, 33)),
    "llama-old": recipe(old, lengths=(1, 4, 33), shards=2),
    "llama-linear": recipe(linear, lengths=(1, 5, 33)),
    "granite-llama": recipe(granite, lengths=(1, 3, 17, 33)),
    "granite-llama-odd": recipe(granite_odd, lengths=(1, 7, 33), shards=2),
    "qwen2": recipe(qwen2, lengths=(1, 3, 17, 33)),
    "qwen3-dense": recipe(qwen, lengths=(1, 3, 17, 33), generation={"eos_token_id": [2, 7]}),
    "qwen3-dense-odd": recipe(qwen_odd, lengths=(1, 5, 33)),
    "qwen3-windows": recipe(qwen_windows, lengths=(1, 5, 6, 17, 49)),
    "qwen3-windows-odd": recipe(qwen_windows_odd, lengths=(1, 23, 24, 75), shards=2),
    "qwen3-moe": recipe(qwen_moe, lengths=(1, 3, 17, 33), shards=2),
    "qwen3-moe-mixed": recipe(qwen_moe_mixed, lengths=(1, 5, 33)),
    "smollm3": recipe(smollm3, lengths=(1, 3, 17, 33)),
    "smollm3-windows": recipe(smollm3_windows, lengths=(1, 19, 20, 67), shards=2),
}
