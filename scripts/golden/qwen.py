"""The golden fixtures of the qwen3_next, qwen3_5 and qwen3_5_moe families."""

from golden.recipe import recipe
from reference.families import plan_of, text_config

linear, full = "linear_attention", "full_attention"

delta = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
}

shared = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 40,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 131,
    **delta,
}

next_experts = {
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 12,
    "norm_topk_prob": True,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 20,
}

qwen3_next = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    **shared,
    **next_experts,
    "bos_token_id": 3,
    "eos_token_id": 5,
    "full_attention_interval": 4,
    "hidden_size": 32,
    "intermediate_size": 44,
    "linear_value_head_dim": 32,
    "moe_intermediate_size": 10,
    "num_hidden_layers": 4,
    "partial_rotary_factor": 0.25,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
}

# Layers 1 and 3 by the step, of which 1 is named a dense one; every second layer is attention.
qwen3_next_sparse = {
    **{key: value for key, value in qwen3_next.items() if "rope" not in key},
    "decoder_sparse_step": 2,
    "dtype": "bfloat16",
    "head_dim": 16,
    "hidden_size": 40,
    "layer_types": [linear, full, linear, full],
    "linear_value_head_dim": 16,
    "mlp_only_layers": [1],
    "norm_topk_prob": False,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 2,
    "rope_parameters": {
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000.0,
        "rope_type": "default",
    },
}
for gone in ("full_attention_interval", "partial_rotary_factor", "torch_dtype"):
    del qwen3_next_sparse[gone]

qwen3_next_odd = {
    **qwen3_next,
    "bos_token_id": 276,
    "eos_token_id": 278,
    "full_attention_interval": 3,
    "head_dim": 24,
    "hidden_size": 34,
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 12,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 10,
    "moe_intermediate_size": 11,
    "num_attention_heads": 3,
    "num_experts": 5,
    "num_hidden_layers": 3,
    "shared_expert_intermediate_size": 13,
    "tie_word_embeddings": True,
    "vocab_size": 285,
}

# Rows of an odd length (the experts' down projection) and one row (the shared expert's gate).
qwen3_next_f16 = {
    **qwen3_next_odd,
    "full_attention_interval": 2,
    "num_experts": 4,
    "num_hidden_layers": 2,
    "torch_dtype": "float16",
    "vocab_size": 129,
    "bos_token_id": 126,
    "eos_token_id": 127,
}

# As transformers 5 holds experts, and may write them.
qwen3_next_stacked = {
    **qwen3_next,
    "full_attention_interval": 2,
    "num_hidden_layers": 2,
    "vocab_size": 101,
}


def rope(section, theta=10000000):
    return {
        "mrope_interleaved": True,
        "mrope_section": section,
        "partial_rotary_factor": 0.25,
        "rope_theta": theta,
        "rope_type": "default",
    }


def text_of(kind, layers, **keys):
    text = {
        "model_type": kind,
        **shared,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 5,
        "full_attention_interval": 4,
        "layer_types": layers,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_hidden_layers": len(layers),
        "output_gate_type": "swish",
        "rope_parameters": rope([2, 1, 1]),
    }
    text.update(keys)
    return text


def nested(kind, text):
    """As published: the language model next to a vision tower, which is ignored here."""
    vision = {
        "deepstack_visual_indexes": [],
        "depth": 1,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 16,
        "in_channels": 3,
        "intermediate_size": 24,
        "model_type": kind + "_vision",
        "num_heads": 2,
        "num_position_embeddings": 16,
        "out_hidden_size": text["hidden_size"],
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    names = {"qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
    return {
        "architectures": [names[kind] + "ForConditionalGeneration"],
        "image_token_id": 9,
        "model_type": kind,
        "text_config": text,
        "tie_word_embeddings": text["tie_word_embeddings"],
        "video_token_id": 8,
        "vision_config": vision,
        "vision_end_token_id": 7,
        "vision_start_token_id": 6,
    }


vision_tensors = (
    ("model.visual.blocks.0.attn.proj.bias", (16,), "bias"),
    ("model.visual.blocks.0.attn.proj.weight", (16, 16), "linear"),
    ("model.visual.patch_embed.proj.weight", (16, 3, 2, 4, 4), "linear"),
)


def mtp_tensors(config):
    """Of the layer that drafts tokens; reference/drafts.py says what it drafts."""
    sparse = {"mlp_only_layers": [], "decoder_sparse_step": 1}
    text = {**text_config(config), "layer_types": [full], "num_hidden_layers": 1, **sparse}
    hidden = text["hidden_size"]
    yield "mtp.fc.weight", (hidden, 2 * hidden), "linear"
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        yield f"mtp.{name}.weight", (hidden,), "norm_1p"
    yield from plan_of(text, "mtp.").layer_tensors()


next_only = ("decoder_sparse_step", "mlp_only_layers", "norm_topk_prob")
experts = {key: value for key, value in next_experts.items() if key not in next_only}

dense = nested(
    "qwen3_5",
    text_of(
        "qwen3_5_text",
        [linear, linear, linear, full],
        hidden_size=36,
        intermediate_size=35,
        vocab_size=97,
    ),
)

# The form of the smallest published models: tied, as many key heads as value heads.
dense_text = {
    "architectures": ["Qwen3_5ForCausalLM"],
    **text_of(
        "qwen3_5_text",
        [linear, full, linear],
        eos_token_id=279,
        intermediate_size=52,
        linear_num_key_heads=3,
        linear_num_value_heads=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        vocab_size=288,
    ),
}

moe = nested(
    "qwen3_5_moe",
    text_of(
        "qwen3_5_moe_text",
        [linear, linear, full],
        **experts,
        hidden_size=34,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
    ),
)

moe_text = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    **text_of(
        "qwen3_5_moe_text",
        [full, linear, full],
        **{**experts, "num_experts": 5, "num_experts_per_tok": 3},
        head_dim=24,
        hidden_size=38,
        linear_key_head_dim=12,
        linear_num_key_heads=1,
        linear_num_value_heads=5,
        linear_value_head_dim=14,
        num_attention_heads=3,
        rope_parameters=rope([1, 1, 1], 10000),
        vocab_size=149,
    ),
}

lengths = (1, 3, 4, 17, 33)

fixtures = {
    "qwen3_5-dense": recipe(
        dense,
        lengths=(1, 2, 64, 65),
        extra=(*vision_tensors, *mtp_tensors(dense)),
    ),
    "qwen3_5-text": recipe(
        dense_text,
        lengths=(1, 3, 4, 33),
        tokenizer="qwen3_5",
        padding_rows=4,
        generation={"bos_token_id": 277, "eos_token_id": [279, 277], "pad_token_id": 277},
        extra=tuple(mtp_tensors(dense_text)),
    ),
    "qwen3_5-moe": recipe(
        moe,
        lengths=lengths,
        shards=2,
        extra=vision_tensors,
    ),
    "qwen3_5-moe-text": recipe(moe_text, lengths=lengths, fused=False),
    "qwen3-next": recipe(qwen3_next, lengths=lengths, extra=tuple(mtp_tensors(qwen3_next))),
    "qwen3-next-sparse": recipe(qwen3_next_sparse, lengths=(1, 3, 4, 33)),
    "qwen3-next-stacked": recipe(qwen3_next_stacked, lengths=(1, 3, 33), fused=True),
    "qwen3-next-odd": recipe(
        qwen3_next_odd,
        lengths=(1, 2, 3, 33),
        shards=2,
        tokenizer="qwen3_next",
        padding_rows=2,
        generation={"eos_token_id": [278, 276], "pad_token_id": 276},
        extra=tuple(mtp_tensors(qwen3_next_odd)),
    ),
    "qwen3-next-f16": recipe(qwen3_next_f16, lengths=(1, 2, 3, 33), half="F16"),
}
