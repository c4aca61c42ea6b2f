"""config.json of published checkpoints, and what is known of their sizes.

The keys and values that decide shapes are those of the publishers; what only trainers need is left
out. `known` figures come from outside: parameter counts in billions, recurrent state in MiB per
sequence (f32 or bf16, convolution windows in bf16 both times) and KV bytes per token in bf16.
"""

import os

from checkpoints import checkpoint_files
from checkpoints import published_linear as linear, published_recurrent as recurrent

presets = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "presets")


def preset(name):
    return checkpoint_files.read_json(os.path.join(presets, name, "config.json"))


def known(billions, f32, bf16, kv):
    return {"billions": billions, "state_mib_f32": f32, "state_mib_bf16": bf16, "kv_bytes": kv}


def nemotron(pattern, **keys):
    """In the order of keys of the presets that were there first."""
    config = {
        "model_type": "nemotron_h",
        "architectures": ["NemotronHForCausalLM"],
        "hidden_size": 0,
        "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "use_conv_bias": True,
        "mamba_proj_bias": False,
        "use_bias": False,
        "chunk_size": 128,
        "time_step_limit": [0.0, float("inf")],
        "intermediate_size": 0,
        "mlp_hidden_act": "relu2",
        "layer_norm_epsilon": 1e-05,
        "tie_word_embeddings": False,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        "eos_token_id": 12,
        "bos_token_id": 1,
    }
    config.update(keys)
    return config


super_pattern = (
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
)

nemotrons = {
    "nemotron-h-8b": nemotron(
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        hidden_size=4096,
        intermediate_size=21504,
        mamba_head_dim=64,
        max_position_embeddings=8192,
        num_attention_heads=32,
        eos_token_id=2,
    ),
    "nemotron-nano-9b-v2": nemotron(
        "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        hidden_size=4480,
        intermediate_size=15680,
    ),
    "nemotron-nano-12b-v2": preset("nemotron-nano-12b-v2"),
    "nemotron-3-nano-4b": nemotron(
        "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
        chunk_size=256,
        hidden_size=3136,
        intermediate_size=12544,
        mamba_num_heads=96,
        max_position_embeddings=262144,
        mamba_ssm_cache_dtype="float32",
        eos_token_id=2,
    ),
    "nemotron-3-nano-30b-a3b": preset("nemotron-3-nano-30b-a3b"),
    "nemotron-3-super-120b-a12b": nemotron(
        super_pattern,
        hidden_size=4096,
        intermediate_size=2688,
        mamba_head_dim=64,
        max_position_embeddings=262144,
        num_attention_heads=32,
        num_key_value_heads=2,
        mamba_ssm_cache_dtype="float32",
        eos_token_id=2,
        n_routed_experts=512,
        num_experts_per_tok=22,
        moe_intermediate_size=2688,
        moe_latent_size=1024,
        moe_shared_expert_intermediate_size=5376,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=5.0,
        num_nextn_predict_layers=1,
        mtp_hybrid_override_pattern="*E",
    ),
}

qwen_keys = {
    "num_attention_heads": 0,
    "num_key_value_heads": 0,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 0,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "hidden_act": "silu",
    "attention_bias": False,
    "attn_output_gate": True,
    "output_gate_type": "swish",
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "rms_norm_eps": 1e-06,
    "vocab_size": 248320,
    "tie_word_embeddings": False,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
    "eos_token_id": 248044,
}


def qwen3_5(kind, hidden, layers, heads, kv_heads, value_heads, **keys):
    """As published: the language model with a vision tower, of which only the name is here."""
    types = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)]
    text = {
        "model_type": kind + "_text",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "layer_types": types,
        "full_attention_interval": 4,
        **qwen_keys,
    }
    text.update(num_attention_heads=heads, num_key_value_heads=kv_heads)
    text.update(linear_num_value_heads=value_heads, **keys)
    names = {"qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
    return {
        "model_type": kind,
        "architectures": [names[kind] + "ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"model_type": kind + "_vision"},
        "tie_word_embeddings": text["tie_word_embeddings"],
    }


def experts(count, chosen, width):
    found = {"num_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    return {**found, "shared_expert_intermediate_size": width}


tied = {"tie_word_embeddings": True}
qwens = {
    "qwen3-next-80b-a3b": preset("qwen3-next-80b-a3b"),
    "qwen3.5-0.8b": qwen3_5("qwen3_5", 1024, 24, 8, 2, 16, intermediate_size=3584, **tied),
    "qwen3.5-4b": qwen3_5("qwen3_5", 2560, 32, 16, 4, 32, intermediate_size=9216, **tied),
    "qwen3.5-9b": qwen3_5("qwen3_5", 4096, 32, 16, 4, 32, intermediate_size=12288),
    "qwen3.5-27b": qwen3_5("qwen3_5", 5120, 64, 24, 4, 48, intermediate_size=17408),
    "qwen3.5-35b-a3b": qwen3_5("qwen3_5_moe", 2048, 40, 16, 2, 32, **experts(256, 8, 512)),
    "qwen3.5-122b-a10b": qwen3_5("qwen3_5_moe", 3072, 48, 32, 2, 64, **experts(256, 8, 1024)),
    "qwen3.5-397b-a17b": qwen3_5("qwen3_5_moe", 4096, 60, 32, 2, 64, **experts(512, 10, 1024)),
}

# Without the keys that decide no shape and are not known here: token ids, the position limit.
falcons = {
    "falcon-h1-0.5b": {
        "model_type": "falcon_h1",
        "architectures": ["FalconH1ForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 36,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "mamba_d_ssm": 1536,
        "mamba_n_heads": 24,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 256,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "mamba_rms_norm": False,
        "mamba_norm_before_gate": False,
        "projectors_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "intermediate_size": 2048,
        "rope_theta": 100000000000.0,
        "rms_norm_eps": 1e-05,
        "embedding_multiplier": 5.656854249492381,
        "lm_head_multiplier": 0.0390625,
        "attention_in_multiplier": 1.0,
        "attention_out_multiplier": 0.9375,
        "key_multiplier": 0.390625,
        "ssm_in_multiplier": 1.25,
        "ssm_out_multiplier": 0.23570226039551587,
        "ssm_multipliers": [0.35355, 0.25, 0.35355, 0.5, 0.35355],
        "mlp_multipliers": [0.8838834764831844, 0.5859375],
        "tie_word_embeddings": False,
        "vocab_size": 32784,
        "torch_dtype": "bfloat16",
    }
}


def lfm2(kind, hidden, layers, attention, **keys):
    types = ["full_attention" if i in attention else "conv" for i in range(layers)]
    return {
        "model_type": kind,
        "architectures": [{"lfm2": "Lfm2", "lfm2_moe": "Lfm2Moe"}[kind] + "ForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "layer_types": types,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": 8,
        "conv_L_cache": 3,
        "conv_bias": False,
        **keys,
        "norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "vocab_size": 65536,
        "max_position_embeddings": 128000,
        "bos_token_id": 1,
        "eos_token_id": 7,
        "pad_token_id": 0,
    }


def widths(width, adjusted):
    """Of the dense feed-forward, as LFM2 spells it."""
    found = {"block_auto_adjust_ff_dim": adjusted, "block_ff_dim": width}
    found.update(block_ffn_dim_multiplier=1.0, block_multiple_of=256)
    return {**found, "tie_embedding": True, "torch_dtype": "bfloat16"}


def lfm3_types(layers):
    kinds = {0: "sliding_attention", 2: "full_attention"}
    return ["conv", *(kinds.get(i % 4, "conv") for i in range(1, layers))]


early = (2, 5, 8, 10, 12, 14)
lfm2s = {
    "lfm2-350m": lfm2("lfm2", 1024, 16, early, **widths(6656, True)),
    "lfm2-1.2b": lfm2("lfm2", 2048, 16, early, **widths(12288, True)),
    "lfm2-2.6b": lfm2("lfm2", 2048, 30, (2, 5, 9, 13, 17, 21, 24, 27), **widths(10752, False)),
    "lfm2-8b-a1b": lfm2(
        "lfm2_moe",
        2048,
        24,
        (2, 6, 10, 14, 18, 21),
        intermediate_size=7168,
        moe_intermediate_size=1792,
        num_dense_layers=2,
        num_experts=32,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        use_expert_bias=True,
        routed_scaling_factor=1.0,
        tie_word_embeddings=True,
        dtype="bfloat16",
    ),
    # Layers and ropes are those of transformers' Lfm3Config, whose counts are the published ones.
    "lfm3-1.7b": {
        "model_type": "lfm3",
        "architectures": ["Lfm3ForCausalLM"],
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "layer_types": lfm3_types(24),
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 7680,
        "conv_L_cache": 7,
        "conv_bias": False,
        "attention_bias": False,
        "sliding_window": 256,
        "use_sandwich_norm": True,
        "use_attention_gate": True,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1000000.0,
                "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        "norm_eps": 1e-05,
        "vocab_size": 128000,
        "tie_word_embeddings": True,
        "max_position_embeddings": 262144,
        "bos_token_id": 124894,
        "eos_token_id": 124900,
        "pad_token_id": 124893,
        "dtype": "bfloat16",
    },
}


def llama(kind, model_type, width, layers, heads, **keys):
    """In every layer attention with rope, and a feed-forward."""
    return {
        "model_type": model_type,
        "architectures": [kind + "ForCausalLM"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        **keys,
    }


def llama3_rope(factor):
    return {
        "factor": factor,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }


llama3_keys = {"vocab_size": 128256, "rope_theta": 500000.0, "mlp_bias": False}
granite_keys = {
    "vocab_size": 49155,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "mlp_bias": False,
    "tie_word_embeddings": True,
}
qwen3_keys = {
    "vocab_size": 151936,
    "head_dim": 128,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "use_sliding_window": False,
    "sliding_window": None,
}

llamas = {
    "llama-3.2-1b": llama(
        "Llama", "llama", 2048, 16, 32, **llama3_keys,
        head_dim=64,
        intermediate_size=8192,
        rope_scaling=llama3_rope(32.0),
        tie_word_embeddings=True,
    ),
    "llama-3.1-8b": llama(
        "Llama", "llama", 4096, 32, 32, **llama3_keys,
        intermediate_size=14336,
        rope_scaling=llama3_rope(8.0),
        tie_word_embeddings=False,
    ),
    "granite-3.1-2b": llama(
        "Granite", "granite", 2048, 40, 32, **granite_keys,
        intermediate_size=8192,
        attention_multiplier=0.015625,
        logits_scaling=8.0,
        rope_theta=5000000.0,
    ),
    "granite-3.2-8b": llama(
        "Granite", "granite", 4096, 40, 32, **granite_keys,
        intermediate_size=12800,
        attention_multiplier=0.0078125,
        logits_scaling=16.0,
        rope_theta=10000000.0,
    ),
    "smollm3-3b": {
        **llama("SmolLM3", "smollm3", 2048, 36, 16, vocab_size=128256, intermediate_size=11008),
        "layer_types": ["full_attention"] * 36,
        "max_position_embeddings": 65536,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0] * 9,
        "num_key_value_heads": 4,
        "pad_token_id": 128004,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "tie_word_embeddings": True,
    },
    "qwen3-0.6b": {
        **llama("Qwen3", "qwen3", 1024, 28, 16, intermediate_size=3072),
        **qwen3_keys,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        **llama("Qwen3", "qwen3", 4096, 36, 32, intermediate_size=12288),
        **qwen3_keys,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        **llama("Qwen3Moe", "qwen3_moe", 2048, 48, 32, intermediate_size=6144),
        **qwen3_keys,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
    },
}

def gpt_oss(layers, experts):
    return {
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 2880,
        "num_hidden_layers": layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "attention_bias": True,
        "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072,
        "intermediate_size": 2880,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "swiglu_limit": 7.0,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "sliding_window": 128,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "vocab_size": 201088,
        "eos_token_id": 200002,
        "tie_word_embeddings": False,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }


def gemma3n(layers, width, shared):
    return {
        "model_type": "gemma3n",
        "architectures": ["Gemma3nForConditionalGeneration"],
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma3n_text",
            "hidden_size": 2048,
            "num_hidden_layers": layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-06,
            "max_position_embeddings": 32768,
            "intermediate_size": [width] * layers,
            "activation_sparsity_pattern": [0.95] * 10 + [0.0] * (layers - 10),
            "sliding_window": 512,
            "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * (layers // 5),
            "num_kv_shared_layers": shared,
            "rope_local_base_freq": 10000.0,
            "rope_theta": 1000000.0,
            "final_logit_softcapping": 30.0,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
            "altup_active_idx": 0,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_num_inputs": 4,
            "laurel_rank": 64,
            "vocab_size": 262400,
        },
    }


def gemma4(kinds, **keys):
    """Layers of these kinds, over and over."""
    layers = keys["num_hidden_layers"]
    return {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma4_text",
            "head_dim": 256,
            "global_head_dim": 512,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-06,
            "layer_types": kinds * (layers // len(kinds)),
            "final_logit_softcapping": 30.0,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1000000.0,
                    "rope_type": "proportional",
                },
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            },
            "vocab_size": 262144,
            **keys,
        },
    }


windows = {
    "gpt-oss-20b": gpt_oss(24, 32),
    "gpt-oss-120b": gpt_oss(36, 128),
    "gemma-3-1b": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_size": 1152,
        "num_hidden_layers": 26,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "rms_norm_eps": 1e-06,
        "max_position_embeddings": 32768,
        "intermediate_size": 6912,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "rope_theta": 1000000,
        "rope_local_base_freq": 10000,
        "rope_scaling": None,
        "vocab_size": 262144,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
    },
    "gemma-3-27b": {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "query_pre_attn_scalar": 168,
            "rms_norm_eps": 1e-06,
            "max_position_embeddings": 131072,
            "intermediate_size": 21504,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "rope_theta": 1000000,
            "rope_local_base_freq": 10000,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "vocab_size": 262208,
        },
    },
    "command-r7b": {
        "model_type": "cohere2",
        "architectures": ["Cohere2ForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "attention_bias": False,
        "layer_norm_eps": 1e-05,
        "logit_scale": 0.25,
        "intermediate_size": 14336,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "rope_theta": 50000,
        "max_position_embeddings": 132096,
        "vocab_size": 256000,
        "bos_token_id": 5,
        "eos_token_id": 255001,
        "torch_dtype": "bfloat16",
    },
    "llama-4-scout": {
        "model_type": "llama4",
        "architectures": ["Llama4ForConditionalGeneration"],
        "text_config": {
            "model_type": "llama4_text",
            "hidden_size": 5120,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_act": "silu",
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
            "attn_temperature_tuning": True,
            "attn_scale": 0.1,
            "floor_scale": 8192,
            "use_qk_norm": True,
            "rms_norm_eps": 1e-05,
            "max_position_embeddings": 10485760,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "factor": 16.0,
                "high_freq_factor": 1.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 202048,
            "bos_token_id": 200000,
            "eos_token_id": [200001, 200007, 200008],
        },
    },
    "ministral-3-8b": {
        "model_type": "mistral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "ministral3",
            "hidden_size": 4096,
            "num_hidden_layers": 34,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-05,
            "max_position_embeddings": 262144,
            "intermediate_size": 14336,
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16384,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            "vocab_size": 131072,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    },
    "gemma-3n-e2b": gemma3n(30, 8192, 10),
    "gemma-3n-e4b": gemma3n(35, 16384, 15),
    "gemma-4-e2b": gemma4(
        ["sliding_attention"] * 4 + ["full_attention"],
        hidden_size=1536,
        num_hidden_layers=35,
        num_attention_heads=8,
        num_key_value_heads=1,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
        hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144,
        max_position_embeddings=131072,
        intermediate_size=6144,
        sliding_window=512,
    ),
    "gemma-4-e4b": gemma4(
        ["sliding_attention"] * 5 + ["full_attention"],
        hidden_size=2560,
        num_hidden_layers=42,
        num_attention_heads=8,
        num_key_value_heads=2,
        num_kv_shared_layers=18,
        use_double_wide_mlp=False,
        hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144,
        max_position_embeddings=131072,
        intermediate_size=10240,
        sliding_window=512,
    ),
    "gemma-4-12b": {
        **gemma4(
            ["sliding_attention"] * 5 + ["full_attention"],
            model_type="gemma4_unified_text",
            hidden_size=3840,
            num_hidden_layers=48,
            num_attention_heads=16,
            num_key_value_heads=8,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            max_position_embeddings=262144,
            intermediate_size=15360,
            sliding_window=1024,
        ),
        "model_type": "gemma4_unified",
        "architectures": ["Gemma4UnifiedForConditionalGeneration"],
    },
    "gemma-4-26b-a4b": gemma4(
        ["sliding_attention"] * 5 + ["full_attention"],
        hidden_size=2816,
        num_hidden_layers=30,
        num_attention_heads=16,
        num_key_value_heads=8,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        enable_moe_block=True,
        num_experts=128,
        top_k_experts=8,
        moe_intermediate_size=704,
        max_position_embeddings=262144,
        intermediate_size=2112,
        sliding_window=1024,
    ),
    "gemma-4-31b": gemma4(
        ["sliding_attention"] * 5 + ["full_attention"],
        hidden_size=5376,
        num_hidden_layers=60,
        num_attention_heads=32,
        num_key_value_heads=16,
        num_global_key_value_heads=4,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        max_position_embeddings=262144,
        intermediate_size=21504,
        sliding_window=1024,
    ),
}

configs = {**nemotrons, **qwens, **recurrent.bambas, **falcons, **lfm2s, **llamas, **windows}
configs.update({**recurrent.configs, **linear.configs})

figures = {
    "nemotron-h-8b": known(8.10, 97.4, 49.4, 16384),
    "nemotron-nano-9b-v2": known(8.89, 136.9, 69.4, 16384),
    "nemotron-nano-12b-v2": known(12.31, 142.0, 72.0, 24576),
    "nemotron-3-nano-4b": known(3.97, 79.9, 40.5, 16384),
    "nemotron-3-nano-30b-a3b": known(31.58, 46.8, 23.8, 6144),
    "nemotron-3-super-120b-a12b": known(120.67, 162.3, 82.3, 8192),
    "qwen3-next-80b-a3b": known(79.67, 73.7, 37.7, 24576),
    "qwen3.5-0.8b": known(None, 18.6, 9.6, 12288),
    "qwen3.5-4b": known(None, 49.1, 25.1, 32768),
    "qwen3.5-9b": known(None, 49.1, 25.1, 32768),
    "qwen3.5-27b": known(None, 146.8, 74.8, 65536),
    "qwen3.5-35b-a3b": known(None, 61.4, 31.4, 20480),
    "qwen3.5-122b-a10b": known(None, 146.5, 74.5, 24576),
    "qwen3.5-397b-a17b": known(None, 183.2, 93.2, 30720),
    "bamba-9b": known(None, 117.4, 59.4, 12288),
    "falcon-h1-0.5b": known(None, 27.4, 13.9, 18432),
    "lfm2-350m": known(None, 0.04, 0.04, 12288),
    "lfm2-1.2b": known(None, 0.08, 0.08, 12288),
    "lfm2-2.6b": known(None, 0.17, 0.17, 16384),
    "lfm2-8b-a1b": known(None, 0.14, 0.14, 12288),
    "lfm3-1.7b": known(1.729, 0.30, 0.30, 12288),
    "llama-3.2-1b": known(1.24, 0.0, 0.0, 32768),
    "llama-3.1-8b": known(8.03, 0.0, 0.0, 131072),
    "smollm3-3b": known(3.08, 0.0, 0.0, 73728),
    "granite-3.1-2b": known(2.53, 0.0, 0.0, 81920),
    "granite-3.2-8b": known(8.17, 0.0, 0.0, 163840),
    "qwen3-0.6b": known(0.60, 0.0, 0.0, 114688),
    "qwen3-8b": known(8.19, 0.0, 0.0, 147456),
    "qwen3-30b-a3b": known(30.53, 0.0, 0.0, 98304),
    "gpt-oss-20b": known(20.91, 0.0, 0.0, 24576),
    "gpt-oss-120b": known(116.83, 0.0, 0.0, 36864),
    "gemma-3-1b": known(1.00, 0.0, 0.0, 4096),
    "gemma-3-27b": known(27.01, 0.0, 0.0, 81920),
    "command-r7b": known(8.03, 0.0, 0.0, 32768),
    # 109 in all as its card says, the part that sees images included.
    "llama-4-scout": known(None, 0.0, 0.0, 49152),
    "ministral-3-8b": known(None, 0.0, 0.0, 139264),
    "gemma-3n-e2b": known(None, 0.0, 0.0, 8192),
    "gemma-3n-e4b": known(None, 0.0, 0.0, 8192),
    "gemma-4-e2b": known(None, 0.0, 0.0, 6144),
    "gemma-4-e4b": known(None, 0.0, 0.0, 16384),
    # 11.95 in all, of which about 0.035 embed images and sounds.
    "gemma-4-12b": known(None, 0.0, 0.0, 16384),
    "gemma-4-26b-a4b": known(None, 0.0, 0.0, 20480),
    "gemma-4-31b": known(30.70, 0.0, 0.0, 81920),
    **{name: known(*row) for name, row in {**recurrent.figures, **linear.figures}.items()},
}

# Counts in the headers of published NVFP4 folders. In the first, experts, shared experts and the
# Mamba projections have 4 tensors each (bytes: half per weight, a scale byte per 16, two F32),
# except in the Mamba layers before attention (4, 11, 18, 25, 32, 41); routers and their biases are
# F32, the rest BF16: its numbers follow from that. The second holds several formats.
nvfp4 = {
    "nemotron-3-nano-30b-a3b": {"tensors": 24147, "bytes": 19339781632},
    "nemotron-3-super-120b-a12b": {"tensors": 165860, "bytes": 80297329824},
}
