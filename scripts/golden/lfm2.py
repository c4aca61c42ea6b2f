"""The golden fixtures of the lfm2 and lfm2_moe families."""

from golden.recipe import recipe

conv, full = "conv", "full_attention"

common = {
    "bos_token_id": 1,
    "conv_L_cache": 3,
    "conv_bias": False,
    "eos_token_id": 7,
    "hidden_size": 40,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "norm_eps": 1e-05,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "use_cache": True,
    "vocab_size": 131,
}

# As the first published models: widths spelled block_*, idle conv_* and block_* keys besides.
dense = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    **common,
    "block_auto_adjust_ff_dim": True,
    "block_dim": 40,
    "block_ff_dim": 94,
    "block_ffn_dim_multiplier": 1.0,
    "block_mlp_init_scale": 1.0,
    "block_multiple_of": 8,
    "block_norm_eps": 1e-05,
    "block_out_init_scale": 1.0,
    "block_use_swiglu": True,
    "block_use_xavier_init": True,
    "conv_dim": 40,
    "conv_dim_out": 40,
    "conv_use_xavier_init": True,
    "layer_types": [conv, conv, full, conv],
    "num_heads": 4,
    "num_hidden_layers": 4,
    "rope_theta": 1000000.0,
    "tie_embedding": True,
    "torch_dtype": "bfloat16",
    "use_pos_enc": True,
    "vocab_size": 284,
}

old = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    **common,
    "block_auto_adjust_ff_dim": False,
    "conv_L_cache": 4,
    "full_attn_idxs": [1, 2],
    "hidden_size": 36,
    "intermediate_size": 61,
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "rope_theta": 10000.0,
    "tie_embedding": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 137,
}

moe = {
    "architectures": ["Lfm2MoeForCausalLM"],
    "model_type": "lfm2_moe",
    **common,
    "dtype": "bfloat16",
    "hidden_size": 40,
    "intermediate_size": 56,
    "layer_types": [conv, conv, full, conv, full],
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "num_dense_layers": 2,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 5,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    "routed_scaling_factor": 1.0,
    "tie_word_embeddings": True,
    "use_expert_bias": True,
}

moe_plain = {
    **moe,
    "conv_L_cache": 2,
    "hidden_size": 42,
    "intermediate_size": 39,
    "layer_types": [full, conv, conv],
    "moe_intermediate_size": 13,
    "norm_topk_prob": False,
    "num_attention_heads": 3,
    "num_dense_layers": 1,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"},
    "routed_scaling_factor": 1.75,
    "tie_word_embeddings": False,
    "use_expert_bias": False,
}

fixtures = {
    "lfm2-dense": recipe(dense, lengths=(1, 2, 3, 33), tokenizer="lfm2"),
    "lfm2-old": recipe(old, lengths=(1, 3, 4, 17, 33), shards=2),
    "lfm2-moe": recipe(moe, lengths=(1, 2, 3, 17, 33), generation={"eos_token_id": [7, 2]}),
    "lfm2-moe-plain": recipe(moe_plain, lengths=(1, 2, 3, 33), shards=2),
}
