"""The golden fixtures with weights of 8 and 4 bits, in forms that are published."""

import dataclasses

from golden import bamba, lfm2, llama, nemotron, qwen, windows
from golden.quantise import Scheme
from golden.recipe import recipe

block_config = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "modules_to_not_convert": ["lm_head", "model.embed_tokens"],
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}

float8 = {"dynamic": False, "num_bits": 8, "type": "float"}

# As in the published 3-Nano: attention and the Mamba layer before it stay bf16.
modelopt_ignore = [
    "backbone.layers.2.mixer.in_proj",
    "backbone.layers.2.mixer.out_proj",
    "backbone.layers.3.mixer.q_proj",
    "backbone.layers.3.mixer.k_proj",
    "backbone.layers.3.mixer.v_proj",
    "backbone.layers.3.mixer.o_proj",
    "lm_head",
]
modelopt_config = {
    "config_groups": {
        "group_0": {"input_activations": float8, "targets": ["Linear"], "weights": float8}
    },
    "ignore": modelopt_ignore,
    "kv_cache_scheme": float8,
    "producer": {"name": "modelopt", "version": "0.29.0"},
    "quant_algo": "FP8",
    "quant_method": "modelopt",
}
modelopt_file = {
    "producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {
        "exclude_modules": modelopt_ignore,
        "kv_cache_quant_algo": "FP8",
        "quant_algo": "FP8",
    },
}


def compressed(strategy, ignore=("lm_head",)):
    def quantised(strategy, dynamic):
        return {
            "actorder": None,
            "block_structure": None,
            "dynamic": dynamic,
            "group_size": None,
            "num_bits": 8,
            "observer": None if dynamic else "minmax",
            "observer_kwargs": {},
            "strategy": strategy,
            "symmetric": True,
            "type": "float",
        }

    return {
        "config_groups": {
            "group_0": {
                "input_activations": quantised("token", True),
                "output_activations": None,
                "targets": ["Linear"],
                "weights": quantised(strategy, False),
            }
        },
        "format": "float-quantized",
        "ignore": list(ignore),
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def fp8_recipe(config, scheme, **options):
    return recipe({**config, "quantization_config": scheme.config}, quantise=scheme, **options)


next_wide = {
    **qwen.qwen3_next,
    "head_dim": 128,
    "hidden_size": 40,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 128,
    "moe_intermediate_size": 20,
    "num_experts": 4,
    "num_hidden_layers": 2,
    "shared_expert_intermediate_size": 132,
    "vocab_size": 109,
}

# Blocks that are not whole in both directions; experts stacked, so scales of rank 3.
moe_wide = qwen.nested(
    "qwen3_5_moe",
    qwen.text_of(
        "qwen3_5_moe_text",
        ["linear_attention", "full_attention"],
        **{**qwen.experts, "num_experts": 3, "moe_intermediate_size": 65},
        head_dim=128,
        hidden_size=132,
        linear_num_value_heads=2,
        num_attention_heads=1,
        rope_parameters=qwen.rope([6, 5, 5]),
        tie_word_embeddings=True,
        vocab_size=61,
    ),
)

qwen_kept = ("in_proj_ba", "in_proj_b.", "in_proj_a.", "visual")
nemotron_kept = ("layers.2.mixer", "layers.3.mixer")

int4_config = {
    "config_groups": {
        "group_0": {
            "input_activations": None,
            "targets": ["Linear"],
            "weights": {
                "actorder": None,
                "group_size": 32,
                "num_bits": 4,
                "strategy": "group",
                "symmetric": False,
                "type": "int",
            },
        }
    },
    "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*in_proj_[ab]$", "re:.*visual.*", "mtp.fc"],
    "quant_method": "compressed-tensors",
}

# All widths are whole groups of 32.
int4_dense = qwen.nested(
    "qwen3_5",
    qwen.text_of(
        "qwen3_5_text",
        ["linear_attention", "full_attention"],
        hidden_size=64,
        intermediate_size=96,
        vocab_size=97,
    ),
)

gptq_config = {
    "bits": 4,
    "checkpoint_format": "gptq",
    "desc_act": True,
    "group_size": 32,
    "quant_method": "gptq",
    "sym": False,
}
gptq_moe = llama.qwen_moe | {
    "hidden_size": 64,
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_hidden_layers": 2,
    "vocab_size": 97,
}

nvfp4_moe = nemotron.moe | {
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48,
    "vocab_size": 131,
}
nvfp4_eights = ("in_proj", "out_proj", "shared_experts")
nvfp4 = Scheme("nvfp4", {}, kept=("layers.3.mixer",), taken=("lm_head",), eights=nvfp4_eights)


def mixed_precision(config, scheme):
    """What ModelOpt says of each layer, in hf_quant_config.json alone."""
    layers = {}
    for name, shape, _ in nemotron.plan_of(config).tensors():
        if scheme.takes(name, shape):
            eight = any(part in name for part in scheme.eights)
            algorithm = {"quant_algo": "FP8" if eight else "W4A16_NVFP4"}
            layers[name.removesuffix(".weight")] = algorithm
    quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    return {"producer": {"name": "modelopt", "version": "0.40.0"}, "quantization": quantization}


# Widths of whole blocks of GGUF's NVFP4.
modelopt_nvfp4 = {"ignore": ["lm_head"], "quant_algo": "NVFP4", "quant_method": "modelopt"}
nvfp4_stacked = windows.llama4 | {
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_local_experts": 4,
    "no_rope_layers": [1, 0],
    "num_hidden_layers": 2,
}

fixtures = {
    "qwen3_5-int4": fp8_recipe(
        int4_dense,
        Scheme(
            "int4",
            int4_config,
            kept=qwen_kept,
            asymmetric=("self_attn", "mtp", "gate_proj", "up_proj"),
            channels=("down_proj",),
        ),
        lengths=(1, 3, 33),
        extra=tuple(qwen.mtp_tensors(int4_dense)),
    ),
    "qwen3-moe-gptq": fp8_recipe(
        gptq_moe,
        Scheme("gptq", gptq_config, apart=("q_proj", "layers.1.mlp.experts.1.gate_proj")),
        lengths=(1, 3, 33),
    ),
    "qwen3-moe-nvfp4": fp8_recipe(
        gptq_moe, Scheme("nvfp4", modelopt_nvfp4, one_unit=True), lengths=(1, 3, 33)
    ),
    "llama4-nvfp4": fp8_recipe(
        nvfp4_stacked,
        Scheme("nvfp4", modelopt_nvfp4, kept=("self_attn", "shared_expert", "router")),
        lengths=(1, 3, 33),
    ),
    "nemotron-nvfp4": recipe(
        nvfp4_moe,
        quantise=dataclasses.replace(
            nvfp4, files={"hf_quant_config.json": mixed_precision(nvfp4_moe, nvfp4)}
        ),
        lengths=(1, 3, 33),
    ),
    "nemotron-fp8": fp8_recipe(
        nemotron.moe | {"vocab_size": 131},
        Scheme(
            "tensor",
            modelopt_config,
            kept=nemotron_kept,
            input_scales=True,
            kv_scales=True,
            files={"hf_quant_config.json": modelopt_file},
        ),
        lengths=(1, 3, 5, 17, 33),
    ),
    "qwen3-next-fp8": fp8_recipe(
        next_wide,
        Scheme("block", block_config, kept=qwen_kept, scale_dtype="BF16"),
        lengths=(1, 3, 33),
    ),
    "qwen3_5-moe-fp8": fp8_recipe(
        moe_wide, Scheme("block", block_config, kept=qwen_kept), lengths=(1, 3, 21)
    ),
    "lfm2-fp8": fp8_recipe(
        lfm2.moe,
        Scheme("channel", compressed("channel", ["lm_head", "re:.*gate$"]), scale_dtype="BF16"),
        lengths=(1, 2, 3, 33),
    ),
    "bamba-fp8": fp8_recipe(
        {**bamba.odd, "num_hidden_layers": 3},
        Scheme("tensor", compressed("tensor"), scale_shape=(1,)),
        lengths=(1, 2, 3, 33),
    ),
}
