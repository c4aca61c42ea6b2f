"""The golden fixtures of the minimax family."""

from golden.recipe import recipe

linear, full = "linear_attention", "full_attention"

# The last layer is one of attention, as published: there lightning attention would forget nothing.
usual = {
    "architectures": ["MiniMaxForCausalLM"],
    "model_type": "minimax",
    "bos_token_id": 3,
    "dtype": "bfloat16",
    "eos_token_id": 5,
    "full_attn_alpha_factor": 1.125,
    "full_attn_beta_factor": 1.5,
    "head_dim": 12,
    "hidden_act": "silu",
    "hidden_size": 40,
    "intermediate_size": 24,
    "layer_types": [linear, full, linear, full],
    "linear_attn_alpha_factor": 1.25,
    "linear_attn_beta_factor": 1.5,
    "max_position_embeddings": 512,
    "mlp_alpha_factor": 1.25,
    "mlp_beta_factor": 1.5,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
    "vocab_size": 131,
}

# A number of heads that is no power of two, every factor another.
odd = {
    **usual,
    "full_attn_alpha_factor": 1.0,
    "full_attn_beta_factor": 1.25,
    "head_dim": 10,
    "hidden_size": 33,
    "intermediate_size": 19,
    "layer_types": [linear, linear, full],
    "linear_attn_alpha_factor": 1.5,
    "linear_attn_beta_factor": 1.25,
    "mlp_alpha_factor": 0.75,
    "mlp_beta_factor": 1.0,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "num_local_experts": 3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "tie_word_embeddings": False,
    "vocab_size": 137,
}

# As published first, with every eighth layer one of attention, as GGUF files have it.
text = {
    **{key: value for key, value in usual.items() if "_factor" not in key and key != "layer_types"},
    "architectures": ["MiniMaxText01ForCausalLM"],
    "model_type": "minimax_text_01",
    "attn_type_list": [0] * 7 + [1],
    "hidden_size": 24,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_hidden_layers": 8,
    "num_key_value_heads": 1,
    "num_local_experts": 3,
    "postnorm": True,
    "rope_theta": 10000.0,
    "rotary_dim": 12,
    "shared_intermediate_size": 0,
    **{f"layernorm_{part}_{end}": value
       for part in ("full_attention", "linear_attention", "mlp")
       for end, value in (("alpha", 1.25), ("beta", 1.0))},
}
text.pop("rope_parameters")
# transformers' spelling of them.
text_peer = {
    "model_type": "minimax",
    "architectures": ["MiniMaxForCausalLM"],
    "layer_types": [linear] * 7 + [full],
    **{f"{part}_alpha_factor": 1.25 for part in ("full_attn", "linear_attn", "mlp")},
    **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")},
}

fixtures = {
    "minimax-text": recipe(text, lengths=(1, 3, 17, 33), peer=text_peer),
    "minimax": recipe(usual, lengths=(1, 3, 17, 33)),
    "minimax-odd": recipe(odd, lengths=(1, 2, 16, 33), shards=2),
}
