"""Plans of the families whose layers have windows of attention; see plans.py."""

from reference.ffn import LayerInput, Mlp, Moe
from reference.plans import (
    AltUp,
    Block,
    LayerInputs,
    LowRank,
    attention_of,
    granite_factors,
    pair,
    plan_with,
    rope_of,
)
from reference.plans_qwen import qwen_moe
from reference.short_conv import ShortConv


def window_kinds(c, is_full):
    """"full_attention" or "sliding_attention" of every layer."""
    kinds = {True: "full_attention", False: "sliding_attention"}
    return c.get("layer_types") or [kinds[is_full(i)] for i in range(c["num_hidden_layers"])]


def head_dim_of(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def granite_swa_ffn(c, hidden, at):
    if not c.get("num_local_experts"):
        return Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
    shared, wide = None, c.get("shared_intermediate_size")
    if wide:
        shared = Mlp(hidden, at + "shared_mlp.", width=wide, term="shared_mlp", kind="fused")
        shared.name["down"] = at + "shared_mlp.output_linear.weight"
    names = {
        "gate_up": "experts.gate_up_proj",
        "down": "experts.down_proj",
        "router": "router.weight",
    }
    k, width = c["num_experts_per_tok"], c["intermediate_size"]
    options = {"experts": c["num_local_experts"], "top_k": k, "width": width, "shared": shared}
    return Moe(hidden, at + "block_sparse_moe.", names, kind="fused", norm="softmax", **options)


def granite_swa(c, prefix, fused):
    hidden, head_dim = c["hidden_size"], head_dim_of(c)
    own = {"multiplier": float(c["attention_multiplier"]), "head_dim": head_dim, "sinks": True}
    layers = []
    for i, kind in enumerate(window_kinds(c, lambda i: i % 4 == 0)):
        at = f"{prefix}layers.{i}."
        rope = rope_of(c, head_dim)
        if c.get("layer_rope_theta"):
            theta = c["layer_rope_theta"][i]
            rope = {"theta": float(theta), "rope_dims": head_dim if theta else 0, "scaling": None}
        own["window"] = c["sliding_window"] if kind == "sliding_attention" else None
        attention = attention_of(c, hidden, at + "self_attn.", **own, **rope)
        layers.append(pair(at, attention, granite_swa_ffn(c, hidden, at)))
    return plan_with(c, prefix, layers, multipliers=granite_factors(c))


def ministral3(c, prefix, fused):
    hidden, head_dim = c["hidden_size"], head_dim_of(c)
    rope = c["rope_parameters"]
    own = {
        "head_dim": head_dim,
        "window": c.get("sliding_window"),
        "query_beta": rope.get("llama_4_scaling_beta", 0.0),
        "query_period": rope["original_max_position_embeddings"],
        **rope_of(c, head_dim),
    }
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        attention = attention_of(c, hidden, at + "self_attn.", **own)
        layers.append(pair(at, attention, Mlp(hidden, at + "mlp.", width=c["intermediate_size"])))
    return plan_with(c, prefix, layers)


def mellum(c, prefix, fused):
    hidden, eps, head_dim = c["hidden_size"], c["rms_norm_eps"], c["head_dim"]
    own = {"head_dim": head_dim, "qk_norm": "rms", "eps": eps}
    thetas = {"full_attention": 500000.0, "sliding_attention": 10000.0}
    layers = []
    for i, kind in enumerate(window_kinds(c, lambda i: True)):
        at = f"{prefix}layers.{i}."
        rope = rope_of(c, head_dim, theta=thetas[kind], layers=kind)
        own["window"] = c["sliding_window"] if kind == "sliding_attention" else None
        if (c.get("mlp_layer_types") or {i: "sparse"})[i] == "sparse":
            ffn = qwen_moe(c, hidden, at + "mlp.", fused, must_norm=False)
        else:
            ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        layers.append(pair(at, attention_of(c, hidden, at + "self_attn.", **own, **rope), ffn))
    return plan_with(c, prefix, layers)


def turning_layers(c):
    """Which layers have a rope, in Llama 4 and SmolLM3."""
    every = c.get("no_rope_layer_interval", 4)
    return c.get("no_rope_layers") or [
        (i + 1) % every != 0 for i in range(c["num_hidden_layers"])
    ]


def smollm3(c, prefix, fused):
    hidden, head_dim = c["hidden_size"], head_dim_of(c)
    turns = turning_layers(c)
    has_windows = c.get("use_sliding_window") and c.get("sliding_window")
    kinds = window_kinds(c, lambda i: turns[i] or not has_windows)
    layers = []
    for i, kind in enumerate(kinds):
        at = f"{prefix}layers.{i}."
        own = {"head_dim": head_dim, **(rope_of(c, head_dim, theta=2e6) if turns[i] else {})}
        own["window"] = c["sliding_window"] if kind == "sliding_attention" else None
        attention = attention_of(c, hidden, at + "self_attn.", **own)
        layers.append(pair(at, attention, Mlp(hidden, at + "mlp.", width=c["intermediate_size"])))
    return plan_with(c, prefix, layers)


def llama4_ffn(c, hidden, at, is_sparse):
    if not is_sparse:
        return Mlp(hidden, at, width=c["intermediate_size_mlp"])
    width = c["intermediate_size"]
    names = {
        "gate_up": "experts.gate_up_proj",
        "down": "experts.down_proj",
        "router": "router.weight",
    }
    shared = Mlp(hidden, at + "shared_expert.", width=width, term="shared_mlp")
    options = {"experts": c["num_local_experts"], "top_k": c["num_experts_per_tok"]}
    return Moe(
        hidden, at, names, kind="weighed", width=width, score="sigmoid", shared=shared, **options
    )


def llama4(c, prefix, fused):
    hidden, head_dim, count = c["hidden_size"], head_dim_of(c), c["num_hidden_layers"]
    turns = turning_layers(c)
    step = c.get("interleave_moe_layer_step", 1)
    sparse = c.get("moe_layers") or range(step - 1, count, step)
    layers = []
    for i in range(count):
        at = f"{prefix}layers.{i}."
        own = {"head_dim": head_dim}
        if turns[i]:
            own |= {**rope_of(c, head_dim, theta=500000.0), "neighbours": True}
            own |= {"late_norm": c.get("use_qk_norm", True), "eps": c["rms_norm_eps"]}
        elif c.get("attn_temperature_tuning", True):
            own |= {"query_beta": c.get("attn_scale", 0.1)}
            own |= {"query_period": c.get("floor_scale", 8192)}
            own["query_offset"] = 1
        kinds = c.get("layer_types") or {i: "chunked_attention" if turns[i] else "full_attention"}
        own["chunk"] = c["attention_chunk_size"] if kinds[i] == "chunked_attention" else None
        ffn = llama4_ffn(c, hidden, at + "feed_forward.", i in sparse)
        layers.append(pair(at, attention_of(c, hidden, at + "self_attn.", **own), ffn))
    return plan_with(c, prefix, layers)


def cohere2(c, prefix, fused):
    hidden = c["hidden_size"]
    head_dim = hidden // c["num_attention_heads"]
    every = c.get("sliding_window_pattern", 4)
    layers = []
    for i, kind in enumerate(window_kinds(c, lambda i: (i + 1) % every == 0)):
        at = f"{prefix}layers.{i}."
        own = {"head_dim": head_dim}
        if kind == "sliding_attention":
            own |= {"window": c["sliding_window"], "neighbours": True, **rope_of(c, head_dim)}
        attention = attention_of(c, hidden, at + "self_attn.", **own)
        ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        layers.append([Block(at + "input_layernorm.weight", [attention, ffn])])
    own = {"eps": c["layer_norm_eps"], "norm": "layer"}
    own["multipliers"] = {"lm_head_multiplier": c["logit_scale"]}
    return plan_with({"tie_word_embeddings": True, **c}, prefix, layers, **own)


def sandwich(at, attention, ffn):
    """Gemma's layer: a norm before each of the two parts and one after it."""
    norm = lambda name: f"{at}{name}_layernorm.weight"
    return [
        Block(norm("input"), [attention], norm("post_attention")),
        Block(norm("pre_feedforward"), [ffn], norm("post_feedforward")),
    ]


def gemma(c, prefix, is_full, **options):
    """Gemma 2 and 3; options of their attention."""
    hidden, head_dim = c["hidden_size"], c["head_dim"]
    own = {"multiplier": c["query_pre_attn_scalar"] ** -0.5, "head_dim": head_dim, **options}
    layers = []
    for i, kind in enumerate(window_kinds(c, is_full)):
        at = f"{prefix}layers.{i}."
        rope = gemma_rope(c, head_dim, kind)
        own["window"] = c["sliding_window"] if kind == "sliding_attention" else None
        attention = attention_of(c, hidden, at + "self_attn.", **own, **rope)
        width = c["intermediate_size"]
        ffn = Mlp(hidden, at + "mlp.", width=width, activation="gelu_tanh")
        layers.append(sandwich(at, attention, ffn))
    return plan_with(
        {"tie_word_embeddings": True, **c},
        prefix,
        layers,
        norm="rms_1p",
        multipliers={"embedding_multiplier": hidden**0.5},
        logits_cap=c.get("final_logit_softcapping"),
    )


def gemma_rope(c, head_dim, kind):
    if c["model_type"] == "gemma2" or "rope_parameters" in c:
        theta = 10000.0 if kind == "sliding_attention" else 1000000.0
        return rope_of(c, head_dim, theta=theta, layers=kind)
    if kind == "sliding_attention":
        theta = c.get("rope_local_base_freq", 10000.0)
        return {"theta": float(theta), "rope_dims": head_dim, "scaling": None}
    return rope_of(c, head_dim, theta=1000000.0)


def gemma2(c, prefix, fused):
    return gemma(c, prefix, lambda i: i % 2 == 1, score_cap=c["attn_logit_softcapping"])


def gemma3(c, prefix, fused):
    pattern = c.get("sliding_window_pattern", 6)
    own = {"qk_norm": "rms_1p", "eps": c["rms_norm_eps"]}
    return gemma(c, prefix, lambda i: (i + 1) % pattern == 0, **own)


def gpt_oss(c, prefix, fused):
    hidden, head_dim = c["hidden_size"], head_dim_of(c)
    own = {"head_dim": head_dim, "sinks": True, "biases": True, **rope_of(c, head_dim)}
    ends = {"gate_up": "gate_up_proj", "down": "down_proj"}
    ends |= {"gate_up_bias": "gate_up_proj_bias", "down_bias": "down_proj_bias"}
    names = {role: "experts." + end for role, end in ends.items()}
    names |= {"router": "router.weight", "router_bias": "router.bias"}
    experts = {
        "experts": c["num_local_experts"],
        "top_k": c["num_experts_per_tok"],
        "width": c["intermediate_size"],
        "alpha": c.get("swiglu_alpha", 1.702),
        "limit": c.get("swiglu_limit", 7.0),
        "norm": "softmax",
    }
    layers = []
    for i, kind in enumerate(window_kinds(c, lambda i: i % 2 == 1)):
        at = f"{prefix}layers.{i}."
        own["window"] = c["sliding_window"] if kind == "sliding_attention" else None
        moe = Moe(hidden, at + "mlp.", names, kind="clamped", **experts)
        layers.append(pair(at, attention_of(c, hidden, at + "self_attn.", **own), moe))
    return plan_with(c, prefix, layers)


laurel_names = ("linear_left", "linear_right", "post_laurel_norm")


def layer_inputs_of(c, prefix):
    return LayerInputs(
        vocab=c["vocab_size_per_layer_input"],
        width=c["hidden_size_per_layer_input"],
        embed=prefix + "embed_tokens_per_layer.weight",
        projection=prefix + "per_layer_model_projection.weight",
        norm=prefix + "per_layer_projection_norm.weight",
    )


def gemma4_kinds(c):
    kinds = window_kinds(c, lambda i: i % 6 == 5)
    return [*kinds[:-1], "full_attention"]


def gemma4_attention(c, at, kinds, i):
    """The attention of layer i; the last num_kv_shared_layers read what another one keeps."""
    is_full = kinds[i] == "full_attention"
    head_dim = c["global_head_dim" if is_full else "head_dim"]
    rope = rope_of(c, head_dim, layers=kinds[i])
    if "rope_parameters" not in c:
        proportional = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
        rope = {"theta": 1e6 if is_full else 1e4, "rope_dims": head_dim, "scaling": None}
        rope["scaling"] = proportional if is_full else None
    own = len(kinds) - c.get("num_kv_shared_layers", 0)
    attention = attention_of(
        c,
        c["hidden_size"],
        at,
        head_dim=head_dim,
        multiplier=1.0,
        qk_norm="rms",
        eps=c["rms_norm_eps"],
        value_norm=True,
        keys_are_values=is_full and c.get("attention_k_eq_v", False),
        window=None if is_full else c["sliding_window"],
        kv_of=max(j for j in range(own) if kinds[j] == kinds[i]) if i >= own else None,
        **rope,
    )
    if attention.keys_are_values:
        attention.kv_heads = c.get("num_global_key_value_heads") or attention.kv_heads
    return attention


def gemma4_experts(c, hidden, at):
    names = {
        "gate_up": "experts.gate_up_proj",
        "down": "experts.down_proj",
        "router": "router.proj.weight",
        "router_norm": "router.scale",
        "expert_scale": "router.per_expert_scale",
    }
    own = {"experts": c["num_experts"], "top_k": c["top_k_experts"]}
    own |= {"width": c["moe_intermediate_size"], "kind": "fused", "score": "softmax", "norm": 0.0}
    return Moe(hidden, at, names, activation="gelu_tanh", normed_router=True, **own)


def gemma4(c, prefix, fused):
    hidden, usual = c["hidden_size"], 0 if "unified" in c["model_type"] else 256
    width = c.get("hidden_size_per_layer_input", usual)
    kinds, layers = gemma4_kinds(c), []
    for i in range(len(kinds)):
        at = f"{prefix}layers.{i}."
        attention = gemma4_attention(c, at + "self_attn.", kinds, i)
        is_wide = attention.kv_of is not None and c.get("use_double_wide_mlp", False)
        wide = c["intermediate_size"] * (2 if is_wide else 1)
        ffn = Mlp(hidden, at + "mlp.", width=wide, activation="gelu_tanh")
        blocks = sandwich(at, attention, ffn)
        if c.get("enable_moe_block", False):
            norm = lambda name: f"{at}{name}.weight"
            blocks[1] = Block(
                None,
                [ffn, gemma4_experts(c, hidden, at)],
                norm("post_feedforward_layernorm"),
                part_norms=[
                    (norm("pre_feedforward_layernorm"), norm("post_feedforward_layernorm_1")),
                    (norm("pre_feedforward_layernorm_2"), norm("post_feedforward_layernorm_2")),
                ],
            )
        if width:
            part = LayerInput(hidden, at, width=width)
            blocks.append(Block(None, [part], at + "post_per_layer_input_norm.weight"))
        blocks[-1].factor = at + "layer_scalar"
        layers.append(blocks)
    inputs = None
    if width:
        inputs = layer_inputs_of({**c, "hidden_size_per_layer_input": width}, prefix)
    return plan_with(
        {"tie_word_embeddings": True, **c},
        prefix,
        layers,
        multipliers={"embedding_multiplier": hidden**0.5},
        logits_cap=c.get("final_logit_softcapping"),
        layer_inputs=inputs,
    )


def gemma3n(c, prefix, fused):
    hidden, layers = c["hidden_size"], []
    kinds = window_kinds(c, lambda i: (i + 1) % 5 == 0)
    own = len(kinds) - c.get("num_kv_shared_layers", 15)
    sparsity = c.get("activation_sparsity_pattern")
    if sparsity is None:
        sparsity = [0.95 if i < 10 < len(kinds) else 0.0 for i in range(len(kinds))]
    for i, kind in enumerate(kinds):
        at = f"{prefix}layers.{i}."
        attention = attention_of(
            c,
            hidden,
            at + "self_attn.",
            head_dim=c["head_dim"],
            multiplier=1.0,
            qk_norm="rms",
            eps=c["rms_norm_eps"],
            value_norm=True,
            window=c["sliding_window"] if kind == "sliding_attention" else None,
            kv_of=max(j for j in range(own) if kinds[j] == kind) if i >= own else None,
            **gemma_rope(c, c["head_dim"], kind),
        )
        wide = c["intermediate_size"]
        wide = wide[i] if isinstance(wide, list) else wide
        ffn = {"width": wide, "activation": "gelu_tanh", "sparsity": sparsity[i]}
        blocks = sandwich(at, attention, Mlp(hidden, at + "mlp.", **ffn))
        names = [f"{at}laurel.{name}.weight" for name in laurel_names]
        blocks[0].low_rank = LowRank(c.get("laurel_rank", 64), *names)
        part = LayerInput(hidden, at, width=c["hidden_size_per_layer_input"])
        last = Block(None, [part], at + "post_per_layer_input_norm.weight", to_others=True)
        layers.append([*blocks, last])
    return plan_with(
        {"tie_word_embeddings": True, **c},
        prefix,
        layers,
        multipliers={"embedding_multiplier": hidden**0.5},
        logits_cap=c.get("final_logit_softcapping", 30.0),
        layer_inputs=layer_inputs_of(c, prefix),
        altup=AltUp(
            c.get("altup_num_inputs", 4),
            c.get("altup_active_idx", 0),
            c.get("altup_correct_scale", True),
            prefix,
        ),
    )


def lfm3_kinds(c):
    named = {0: "sliding_attention", 2: "full_attention"}
    own = ["conv" if i == 0 else named.get(i % 4, "conv") for i in range(c["num_hidden_layers"])]
    return c.get("layer_types") or own


def lfm3_rope(c, head_dim, kind):
    if "rope_parameters" in c:
        return rope_of(c, head_dim, theta=1e6, layers=kind)
    if kind == "sliding_attention":
        return {"theta": 1e4, "rope_dims": head_dim, "scaling": None}
    proportional = {"rope_type": "proportional", "partial_rotary_factor": 0.5}
    return {"theta": 1e6, "rope_dims": head_dim, "scaling": proportional}


def lfm3(c, prefix, fused):
    """Convolutions, and attention with windows or without, each between two norms or after one."""
    hidden, eps, head_dim = c["hidden_size"], c["norm_eps"], c.get("head_dim", 128)
    own = {"qk_norm": "rms", "eps": eps, "head_dim": head_dim}
    own["head_gate"] = c.get("use_attention_gate", True)
    names = {"gate": "w1.weight", "up": "w3.weight", "down": "w2.weight"}
    layers = []
    for i, kind in enumerate(lfm3_kinds(c)):
        at = f"{prefix}layers.{i}."
        if kind == "conv":
            mixer = ShortConv(hidden, at + "conv.", taps=c.get("conv_L_cache", 7))
        else:
            window = c.get("sliding_window", 256) if kind == "sliding_attention" else None
            rope = lfm3_rope(c, head_dim, kind)
            mixer = attention_of(c, hidden, at + "self_attn.", window=window, **own, **rope)
        ffn = Mlp(hidden, at + "feed_forward.", names, width=c["intermediate_size"])
        blocks = pair(at, mixer, ffn, ("operator_norm", "ffn_norm"))
        if c.get("use_sandwich_norm", True):
            blocks[0].post_norm = at + "post_operator_norm.weight"
            blocks[1].post_norm = at + "post_ffn_norm.weight"
        layers.append(blocks)
    final_norm = prefix + "embedding_norm.weight"
    tied = {"tie_word_embeddings": True, **c}
    return plan_with(tied, prefix, layers, eps=eps, final_norm=final_norm)
