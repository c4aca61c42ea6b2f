"""Plans of the Qwen families, of LFM2 and of OLMo Hybrid; see plans.py."""

from reference.delta import Delta
from reference.ffn import Mlp, Moe
from reference.plans import Block, attention_of, first, kinds_of, pair, plan_with, rope_of
from reference.short_conv import ShortConv


def qwen_kinds(c):
    if c.get("layer_types"):
        return kinds_of(c, "layer_types")
    interval = c.get("full_attention_interval", 4)
    count = c["num_hidden_layers"]
    return ["mamba" if (i + 1) % interval else "attention" for i in range(count)]


def qwen_delta(c, hidden, at, eps, grouped):
    return Delta(
        hidden,
        at,
        key_heads=c["linear_num_key_heads"],
        value_heads=c["linear_num_value_heads"],
        key_dim=c["linear_key_head_dim"],
        value_dim=c["linear_value_head_dim"],
        taps=c.get("linear_conv_kernel_dim", 4),
        eps=eps,
        grouped=grouped,
    )


def qwen_attention(c, hidden, at, eps):
    rope = rope_of(c, c["head_dim"], 0.25)
    return attention_of(c, hidden, at, qk_norm="rms_1p", eps=eps, gated=True, **rope)


def qwen_moe(c, hidden, at, fused, must_norm):
    if fused:
        names = {"gate_up": "experts.gate_up_proj", "down": "experts.down_proj"}
    else:
        names = {role: f"experts.{{}}.{role}_proj.weight" for role in ("gate", "up", "down")}
    shared, wide = None, c.get("shared_expert_intermediate_size")
    if wide:
        names["shared_gate"] = "shared_expert_gate.weight"
        shared = Mlp(hidden, at + "shared_expert.", width=wide, term="shared_mlp")
    return Moe(
        hidden,
        at,
        names,
        kind="fused" if fused else "gated",
        experts=c["num_experts"],
        top_k=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"],
        score="softmax",
        norm=0.0 if must_norm or c.get("norm_topk_prob", True) else None,
        shared=shared,
        shared_gated=shared is not None,
    )


def is_sparse(c, layer):
    if not c.get("num_experts") or layer in (c.get("mlp_only_layers") or []):
        return False
    return (layer + 1) % c.get("decoder_sparse_step", 1) == 0


def qwen_layer(c, kind, sparse, at, grouped, fused):
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    if kind == "mamba":
        mixer = qwen_delta(c, hidden, at + "linear_attn.", eps, grouped)
    else:
        mixer = qwen_attention(c, hidden, at + "self_attn.", eps)
    if sparse:
        ffn = qwen_moe(c, hidden, at + "mlp.", fused, must_norm=not grouped)
    else:
        ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
    return pair(at, mixer, ffn)


def qwen(c, prefix, fused, grouped):
    kinds = qwen_kinds(c)
    layers = []
    for i, kind in enumerate(kinds):
        at = f"{prefix}layers.{i}."
        layers.append(qwen_layer(c, kind, is_sparse(c, i), at, grouped, fused))
    return plan_with(c, prefix, layers, norm="rms_1p")


def qwen3_next(c, prefix, fused):
    return qwen(c, prefix, fused, grouped=True)


def qwen3_5(c, prefix, fused):
    return qwen(c, prefix, fused, grouped=False)


def qwen3_window(c, layer):
    if not c.get("use_sliding_window"):
        return None
    kinds = c.get("layer_types")
    sliding = kinds[layer] == "sliding_attention" if kinds else layer >= c["max_window_layers"]
    return c["sliding_window"] if sliding else None


def qwen3(c, prefix, fused):
    """Attention with norms of q and k in every layer; experts have no shared one beside them."""
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    own = {"head_dim": head_dim, "qk_norm": "rms", "eps": eps, **rope_of(c, head_dim)}
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        if is_sparse(c, i):
            ffn = qwen_moe(c, hidden, at + "mlp.", fused, must_norm=False)
        else:
            ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        own["window"] = qwen3_window(c, i)
        layers.append(pair(at, attention_of(c, hidden, at + "self_attn.", **own), ffn))
    return plan_with(c, prefix, layers)


def lfm2_width(c):
    width = first(c, "block_ff_dim", "intermediate_size")
    if not c.get("block_auto_adjust_ff_dim", c["model_type"] == "lfm2"):
        return width
    width = int(2 * width / 3)
    factor, multiple = c.get("block_ffn_dim_multiplier", 1.0), c.get("block_multiple_of", 256)
    return width if factor is None else -(-int(factor * width) // multiple) * multiple


def lfm2_ffn(c, layer, hidden, at):
    names = {"gate": "w1.weight", "up": "w3.weight", "down": "w2.weight"}
    if not c.get("num_experts") or layer < c.get("num_dense_layers", 2):
        return Mlp(hidden, at, names, width=lfm2_width(c))
    names = {role: "experts.{}." + end for role, end in names.items()}
    has_bias = c.get("use_expert_bias", True)
    return Moe(
        hidden,
        at,
        {**names, "bias": "expert_bias"},
        kind="gated",
        experts=c["num_experts"],
        top_k=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"],
        score="sigmoid",
        norm=1e-6 if c.get("norm_topk_prob", True) else None,
        bias="select_f32" if has_bias else None,
        scale=float(c.get("routed_scaling_factor", 1.0)),
    )


def lfm2(c, prefix, fused):
    hidden, eps = c["hidden_size"], c["norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    names = {"o": "out_proj.weight", "q_norm": "q_layernorm.weight", "k_norm": "k_layernorm.weight"}
    own = {"qk_norm": "rms", "eps": eps, "names": names, "head_dim": head_dim}
    rope = rope_of(c, head_dim, theta=1e6)
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        if c.get("layer_types"):
            is_attention = kinds_of(c, "layer_types")[i] == "attention"
        else:
            is_attention = i in c["full_attn_idxs"]
        if is_attention:
            mixer = attention_of(c, hidden, at + "self_attn.", **own, **rope)
        else:
            mixer = ShortConv(hidden, at + "conv.", taps=c["conv_L_cache"])
        ffn = lfm2_ffn(c, i, hidden, at + "feed_forward.")
        layers.append(pair(at, mixer, ffn, ("operator_norm", "ffn_norm")))
    is_tied = first(c, "tie_embedding", "tie_word_embeddings")
    head = "lm_head.weight" if is_tied is False else None
    final_norm = prefix + "embedding_norm.weight"
    return plan_with(c, prefix, layers, eps=eps, final_norm=final_norm, head=head)


def olmo_theta(c):
    """None: no positions, as a null says wherever it is; not so where nothing is said."""
    rope = c.get("rope_parameters") or {}
    return rope.get("rope_theta", c.get("rope_theta", 10000.0))


def olmo_delta(c, hidden, at):
    own = {"norm": "o_norm.weight", "out": "o_proj.weight"}
    own.update({"z": "g_proj.weight", "b": "b_proj.weight", "a": "a_proj.weight"})
    heads = c["num_attention_heads"]
    key_heads = c.get("linear_num_key_heads") or heads
    key_dim = c.get("linear_key_head_dim") or int(0.75 * hidden / key_heads)
    return Delta(
        hidden,
        at,
        own,
        key_heads=key_heads,
        value_heads=c.get("linear_num_value_heads") or heads,
        key_dim=key_dim,
        value_dim=c.get("linear_value_head_dim") or 2 * key_dim,
        taps=c.get("linear_conv_kernel_dim", 4),
        eps=1e-5,
        grouped=False,
        separate=True,
        beta_scale=2.0 if c.get("linear_allow_neg_eigval", True) else 1.0,
    )


def olmo_hybrid(c, prefix, fused):
    """Norms before delta nets and the feed-forwards beside them, after attention and those."""
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    has_rope = olmo_theta(c) is not None
    own = {"head_dim": head_dim, "qk_norm": "rms", "whole_norm": True, "eps": eps}
    layers = []
    for i, kind in enumerate(qwen_kinds(c)):
        at = f"{prefix}layers.{i}."
        ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        if kind == "mamba":
            delta = olmo_delta(c, hidden, at + "linear_attn.")
            layers.append(pair(at, delta, ffn, ("attention_layer_norm", "feedforward_layer_norm")))
            continue
        rope = rope_of(c, head_dim) if has_rope else {}
        attention = attention_of(c, hidden, at + "self_attn.", **own, **rope)
        norms = ("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")
        parts = zip((attention, ffn), norms)
        layers.append([Block(None, [part], post_norm=at + norm) for part, norm in parts])
    return plan_with(c, prefix, layers)
