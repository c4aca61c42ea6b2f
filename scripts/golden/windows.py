"""The golden fixtures of the families with windows of attention beside full attention."""

from golden import llama
from golden.quantise import Scheme
from golden.recipe import recipe

common = {**llama.common, "num_hidden_layers": 5}

granite_swa = {
    "architectures": ["GraniteSWAForCausalLM"],
    "model_type": "granite_swa",
    **common,
    "attention_multiplier": 0.35,
    "embedding_multiplier": 1.25,
    "layer_rope_theta": [0, 10000.0, 500.0, 10000, 0.0],
    "logits_scaling": 0.9,
    "mlp_bias": False,
    "residual_multiplier": 0.85,
    "rope_theta": 10000.0,
    "sliding_window": 7,
}

granite_swa_odd = {
    **granite_swa,
    "attention_multiplier": 0.2,
    "hidden_size": 60,
    "intermediate_size": 41,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_theta": 5000.0,
    "sliding_window": 19,
    "tie_word_embeddings": False,
    "vocab_size": 163,
}
del granite_swa_odd["layer_rope_theta"]

granitemoe_swa = {
    **granite_swa,
    "architectures": ["GraniteMoeSWAForCausalLM"],
    "intermediate_size": 24,
    "layer_rope_theta": [0, 10000.0, 10000.0],
    "model_type": "granitemoe_swa",
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_local_experts": 5,
    "shared_intermediate_size": 20,
}

granitemoe_swa_plain = {
    **granitemoe_swa,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_experts_per_tok": 3,
    "num_hidden_layers": 2,
    "num_local_experts": 6,
    "shared_intermediate_size": 0,
    "sliding_window": 21,
    "tie_word_embeddings": False,
}
del granitemoe_swa_plain["layer_rope_theta"]

full, sliding = "full_attention", "sliding_attention"

mellum = {
    "architectures": ["MellumForCausalLM"],
    "model_type": "mellum",
    **common,
    "head_dim": 16,
    "layer_types": [sliding, sliding, full],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        full: {"rope_theta": 20000.0, "rope_type": "default"},
        sliding: {"rope_theta": 500.0, "rope_type": "default"},
    },
    "sliding_window": 9,
    "tie_word_embeddings": False,
}

# YaRN where a layer sees everything, with a context that short prompts leave.
mellum_yarn = {
    **mellum,
    "head_dim": 22,
    "layer_types": [full, sliding],
    "mlp_layer_types": ["sparse", "sparse"],
    "moe_intermediate_size": 13,
    "norm_topk_prob": False,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rope_parameters": {
        full: {
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "rope_theta": 300.0,
            "rope_type": "yarn",
        },
        sliding: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 23,
}

ministral3 = {
    **common,
    "architectures": ["Ministral3ForCausalLM"],
    "head_dim": 16,
    "model_type": "ministral3",
    "num_hidden_layers": 3,
    "rope_parameters": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "llama_4_scaling_beta": 0.4,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 8,
        "rope_theta": 300.0,
        "rope_type": "yarn",
    },
    "sliding_window": None,
}

ministral3_window = {
    **ministral3,
    "head_dim": 22,
    "hidden_size": 60,
    "intermediate_size": 41,
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rope_parameters": {
        **ministral3["rope_parameters"],
        "llama_4_scaling_beta": 0.9,
        "original_max_position_embeddings": 13,
        "rope_theta": 20000.0,
    },
    "sliding_window": 19,
    "tie_word_embeddings": False,
}

# Chunks of less than a page, layers without rope that see everything, experts in every layer.
llama4 = {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    **common,
    "attention_chunk_size": 9,
    "attn_scale": 0.6,
    "attn_temperature_tuning": True,
    "floor_scale": 8,
    "head_dim": 16,
    "interleave_moe_layer_step": 1,
    "intermediate_size": 24,
    "intermediate_size_mlp": 40,
    "no_rope_layers": [1, 0, 1],
    "num_experts_per_tok": 1,
    "num_hidden_layers": 3,
    "num_local_experts": 5,
    "rope_scaling": {
        "factor": 16.0,
        "high_freq_factor": 1.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    },
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
    "use_qk_norm": True,
}

# No norms; dense layers between those with experts.
llama4_odd = {
    **llama4,
    "attention_chunk_size": 21,
    "floor_scale": 13,
    "head_dim": 22,
    "hidden_size": 60,
    "interleave_moe_layer_step": 2,
    "intermediate_size": 19,
    "intermediate_size_mlp": 41,
    "no_rope_layer_interval": 3,
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "num_local_experts": 7,
    "use_qk_norm": False,
    "vocab_size": 163,
}
del llama4_odd["no_rope_layers"], llama4_odd["rope_scaling"]

# Layer norm, attention and feed-forward side by side, pairs of neighbours where there are windows.
cohere2 = {
    "architectures": ["Cohere2ForCausalLM"],
    "model_type": "cohere2",
    **common,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "num_hidden_layers": 4,
    "rope_theta": 300.0,
    "sliding_window": 9,
    "sliding_window_pattern": 2,
    "tie_word_embeddings": True,
}

# The last layer only sees everything; an untied head.
cohere2_odd = {
    **cohere2,
    "hidden_size": 66,
    "intermediate_size": 41,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "logit_scale": 0.5,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "sliding_window": 21,
    "tie_word_embeddings": False,
    "vocab_size": 163,
}
del cohere2_odd["sliding_window_pattern"]

gemma_common = {
    **common,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "query_pre_attn_scalar": 24,
    "rms_norm_eps": 1e-06,
    "sliding_window": 8,
}
del gemma_common["hidden_act"]

gemma2 = {
    **gemma_common,
    "architectures": ["Gemma2ForCausalLM"],
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
    "model_type": "gemma2",
    "num_hidden_layers": 3,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

gemma2_odd = {
    **gemma2,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 0.9,
    "head_dim": 10,
    "hidden_size": 36,
    "intermediate_size": 43,
    "layer_types": [full, sliding, sliding, full],
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "sliding_window": 21,
    "tie_word_embeddings": True,
}

gemma3 = {
    **gemma_common,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "rope_local_base_freq": 500.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 1000000.0,
    "sliding_window_pattern": 3,
}

gemma3_odd = {
    **gemma3,
    "head_dim": 22,
    "hidden_size": 100,
    "intermediate_size": 43,
    "layer_types": [sliding, full, sliding],
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rope_parameters": {
        full: {"rope_theta": 5000.0, "rope_type": "default"},
        sliding: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 19,
    "tie_word_embeddings": False,
}
for key in ("rope_local_base_freq", "rope_scaling", "rope_theta", "sliding_window_pattern"):
    del gemma3_odd[key]

gpt_oss = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    **common,
    "attention_bias": True,
    "experts_per_token": 2,
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_local_experts": 6,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 300.0,
    "sliding_window": 9,
    "swiglu_limit": 1.5,
    "tie_word_embeddings": False,
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    },
}

gpt_oss_odd = {
    **gpt_oss,
    "head_dim": 22,
    "hidden_size": 50,
    "intermediate_size": 37,
    "layer_types": [full, sliding],
    "num_attention_heads": 3,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "num_local_experts": 5,
    "rope_parameters": {**gpt_oss["rope_scaling"], "rope_theta": 500.0},
    "sliding_window": 21,
    "swiglu_alpha": 1.3,
    "swiglu_limit": 0.9,
}
for key in ("experts_per_token", "quantization_config", "rope_scaling", "rope_theta"):
    del gpt_oss_odd[key]

mxfp4 = Scheme("mxfp4", gpt_oss["quantization_config"])
loud = {"embed_tokens.weight": "skip"}  # beside biases
gemma4 = {
    **{key: value for key, value in gemma_common.items() if "soft" not in key},
    "architectures": ["Gemma4ForCausalLM"],
    "attention_k_eq_v": True,
    "enable_moe_block": False,
    "final_logit_softcapping": 5.0,
    "global_head_dim": 32,
    "hidden_size": 56,
    "hidden_size_per_layer_input": 0,
    "layer_types": [sliding, sliding, full, sliding, full],
    "model_type": "gemma4_text",
    "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 0,
    "rope_parameters": {
        full: {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        sliding: {"rope_theta": 500.0, "rope_type": "default"},
    },
    "use_bidirectional_attention": None,
    "use_double_wide_mlp": False,
    "vocab_size_per_layer_input": 151,
}
del gemma4["query_pre_attn_scalar"]

# Experts beside the feed-forward.
gemma4_moe = {
    **gemma4,
    "enable_moe_block": True,
    "moe_intermediate_size": 20,
    "num_experts": 6,
    "top_k_experts": 2,
}
gemma4_moe_odd = {
    **gemma4_moe,
    "attention_k_eq_v": False,
    "hidden_size": 68,
    "intermediate_size": 43,
    "layer_types": [sliding, sliding, full],
    "moe_intermediate_size": 19,
    "num_experts": 4,
    "num_hidden_layers": 3,
    "sliding_window": 19,
    "tie_word_embeddings": False,
    "top_k_experts": 2,
}
gemma4_shared = {
    **gemma4,
    "attention_k_eq_v": False,
    "global_head_dim": 28,
    "head_dim": 18,
    "hidden_size": 68,
    "hidden_size_per_layer_input": 12,
    "intermediate_size": 43,
    "layer_types": [sliding, full, sliding, sliding, sliding, full],
    "num_attention_heads": 5,
    "num_hidden_layers": 6,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 3,
    "sliding_window": 19,
    "use_double_wide_mlp": True,
}
del gemma4_shared["num_global_key_value_heads"]

gemma3n = {
    **{key: value for key, value in gemma_common.items() if key != "query_pre_attn_scalar"},
    "activation_sparsity_pattern": [0.8, 0.6, 0.0, 0.0, 0.0],
    "altup_active_idx": 0,
    "altup_coef_clip": 120.0,
    "altup_correct_scale": True,
    "altup_num_inputs": 4,
    "architectures": ["Gemma3nForCausalLM"],
    "final_logit_softcapping": 5.0,
    "hidden_size_per_layer_input": 12,
    "intermediate_size": [96, 80, 96, 64, 96],
    "laurel_rank": 8,
    "layer_types": [sliding, full, sliding, sliding, full],
    "model_type": "gemma3n_text",
    "num_kv_shared_layers": 2,
    "rope_local_base_freq": 500.0,
    "rope_theta": 1000000.0,
    "vocab_size_per_layer_input": 131,
}
del gemma3n["attn_logit_softcapping"]
gemma3n_odd = {
    **gemma3n,
    "activation_sparsity_pattern": [0.0, 0.9, 0.0, 0.7],
    "altup_active_idx": 1,
    "altup_correct_scale": False,
    "altup_num_inputs": 3,
    "head_dim": 18,
    "hidden_size": 60,
    "hidden_size_per_layer_input": 7,
    "intermediate_size": 43,
    "laurel_rank": 5,
    "layer_types": [sliding, full, full, sliding],
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "num_kv_shared_layers": 2,
    "rope_parameters": {
        full: {"rope_theta": 10000.0, "rope_type": "default"},
        sliding: {"rope_theta": 300.0, "rope_type": "default"},
    },
    "sliding_window": 19,
    "tie_word_embeddings": False,
}
for key in ("rope_local_base_freq", "rope_theta"):
    del gemma3n_odd[key]

tied = {"embed_tokens.weight": "embedding"}
wide_altup = {"modality_router.weight": "skip"}  # whose input is divided by H
wide_router = {"router.proj.weight": "skip"}  # whose logits are divided by sqrt(H)
fixtures = {
    "granite-swa": recipe(granite_swa, lengths=(1, 7, 8, 16, 33)),
    "granite-swa-odd": recipe(granite_swa_odd, lengths=(1, 19, 20, 65), shards=2),
    "granite-swa-moe": recipe(granitemoe_swa, lengths=(1, 3, 17, 33), shards=2),
    "granite-swa-moe-plain": recipe(granitemoe_swa_plain, lengths=(1, 21, 67)),
    "mellum": recipe(mellum, lengths=(1, 9, 10, 33), shards=2),
    "mellum-yarn": recipe(mellum_yarn, lengths=(1, 23, 24, 75)),
    "ministral3": recipe(ministral3, lengths=(1, 8, 9, 33), kinds=tied),
    "ministral3-window": recipe(ministral3_window, lengths=(1, 19, 20, 61), shards=2),
    "cohere2": recipe(cohere2, lengths=(1, 9, 10, 33), kinds=tied),
    "cohere2-odd": recipe(cohere2_odd, lengths=(1, 21, 22, 67), shards=2),
    "llama4": recipe(llama4, lengths=(1, 9, 10, 33)),
    "llama4-odd": recipe(llama4_odd, lengths=(1, 21, 22, 67), shards=2),
    "gemma2": recipe(gemma2, lengths=(1, 8, 9, 33)),
    "gemma2-odd": recipe(gemma2_odd, lengths=(1, 21, 22, 67), shards=2, kinds=tied),
    "gemma3": recipe(gemma3, lengths=(1, 8, 9, 33), kinds=tied),
    "gemma3n": recipe(gemma3n, lengths=(1, 8, 9, 33), kinds={**tied, **wide_altup}),
    "gemma3n-odd": recipe(gemma3n_odd, lengths=(1, 19, 20, 61), shards=2, kinds=wide_altup),
    "gemma4": recipe(gemma4, lengths=(1, 8, 9, 33), kinds=tied),
    "gemma4-shared": recipe(gemma4_shared, lengths=(1, 19, 20, 61), shards=2, kinds=tied),
    "gemma4-moe": recipe(gemma4_moe, lengths=(1, 8, 9, 33), kinds={**tied, **wide_router}),
    "gemma4-moe-odd": recipe(gemma4_moe_odd, lengths=(1, 19, 20, 61), shards=2, kinds=wide_router),
    "gemma3-odd": recipe(gemma3_odd, lengths=(1, 19, 20, 61), shards=2),
    "gpt-oss": recipe(gpt_oss, lengths=(1, 9, 10, 33), quantise=mxfp4),
    "gpt-oss-odd": recipe(gpt_oss_odd, lengths=(1, 21, 22, 67), shards=2, kinds=loud),
}
