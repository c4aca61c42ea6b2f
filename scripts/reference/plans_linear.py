"""Plans of families with linear attention of their own kinds; see plans.py."""

from reference.ffn import Mlp, Moe
from reference.kimi import Kda, Mla
from reference.lightning import Lightning
from reference.plans import Block, attention_of, first, kinds_of, pair, plan_with, rope_of


def minimax_factors(c, name, original):
    """alpha and beta of a block, in either spelling."""
    spell = "layernorm_{1}_{2}" if f"layernorm_{original}_alpha" in c else "{0}_{2}_factor"
    return [float(c.get(spell.format(name, original, end), 1)) for end in ("alpha", "beta")]


def minimax_kinds(c):
    if "attn_type_list" in c:
        return ["attention" if kind else "mamba" for kind in c["attn_type_list"]]
    return kinds_of(c, "layer_types")


def minimax_block(norm, part, factors):
    part.factors = {**part.factors, "out": ("added_factor", factors[1])}
    return Block(norm, [part], carried=factors[0])


def minimax_moe(c, hidden, at):
    ends = {"gate": "w1", "up": "w3", "down": "w2"}
    return Moe(
        hidden,
        at,
        {role: f"experts.{{}}.{end}.weight" for role, end in ends.items()},
        kind="gated",
        experts=c["num_local_experts"],
        top_k=c["num_experts_per_tok"],
        width=c["intermediate_size"],
        score="softmax",
        norm=0.0,
    )


def minimax(c, prefix, fused):
    hidden, heads, count = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    head_dim = c.get("head_dim") or hidden // heads
    rope = rope_of(c, head_dim, theta=1e6)
    rope["rope_dims"] = c.get("rotary_dim", head_dim)
    layers = []
    for i, kind in enumerate(minimax_kinds(c)):
        at = f"{prefix}layers.{i}."
        if kind == "attention":
            mixer = attention_of(c, hidden, at + "self_attn.", head_dim=head_dim, **rope)
            factors = minimax_factors(c, "full_attn", "full_attention")
        else:
            pace = 1 - i / (count - 1 + 1e-5) + 1e-5
            own = {"heads": heads, "head_dim": head_dim, "pace": pace}
            mixer = Lightning(hidden, at + "self_attn.", **own)
            factors = minimax_factors(c, "linear_attn", "linear_attention")
        moe = minimax_moe(c, hidden, at + "block_sparse_moe.")
        experts = minimax_block(
            at + "post_attention_layernorm.weight", moe, minimax_factors(c, "mlp", "mlp")
        )
        layers.append([minimax_block(at + "input_layernorm.weight", mixer, factors), experts])
    return plan_with(c, prefix, layers)


def kimi_kinds(c):
    if c.get("layer_types"):
        return kinds_of(c, "layer_types")
    full = c["linear_attn_config"]["full_attn_layers"]
    return ["attention" if i + 1 in full else "mamba" for i in range(c["num_hidden_layers"])]


def kimi_moe(c, hidden, at):
    ends = {"gate": "w1", "up": "w3", "down": "w2"}
    names = {role: f"experts.{{}}.{end}.weight" for role, end in ends.items()}
    names["bias"] = "gate.e_score_correction_bias"
    width = c["moe_intermediate_size"]
    count = first(c, "num_shared_experts", "n_shared_experts")
    shared = Mlp(hidden, at + "shared_experts.", width=width * count, term="shared_mlp")
    return Moe(
        hidden,
        at,
        names,
        kind="gated",
        experts=first(c, "num_experts", "num_local_experts"),
        top_k=first(c, "num_experts_per_token", "num_experts_per_tok"),
        width=width,
        score="sigmoid",
        norm=1e-20 if c.get("moe_renormalize", True) else None,
        bias="select_f32",
        router_kind="linear_f32",
        groups=c.get("num_expert_group", 1),
        top_groups=c.get("topk_group", 1),
        scale=float(c["routed_scaling_factor"]),
        shared=shared,
    )


def latents_of(c, hidden, at, **options):
    return Mla(
        hidden,
        at,
        heads=c["num_attention_heads"],
        plain_dim=c["qk_nope_head_dim"],
        turned_dim=c["qk_rope_head_dim"],
        value_dim=c["v_head_dim"],
        latent=c["kv_lora_rank"],
        q_rank=c.get("q_lora_rank"),
        **options,
    )


def kimi_mixer(c, kind, hidden, at):
    if kind == "attention":
        return latents_of(c, hidden, at)
    own = c["linear_attn_config"]
    heads, dim = own["num_heads"], own["head_dim"]
    sizes = {"key_heads": heads, "value_heads": heads, "key_dim": dim, "value_dim": dim}
    taps = own["short_conv_kernel_size"]
    return Kda(hidden, at, **sizes, rank=dim, taps=taps, eps=c["rms_norm_eps"])


def kimi_linear(c, prefix, fused):
    hidden = c["hidden_size"]
    layers = []
    for i, kind in enumerate(kimi_kinds(c)):
        at = f"{prefix}layers.{i}."
        if i < c.get("first_k_dense_replace", 1):
            ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        else:
            ffn = kimi_moe(c, hidden, at + "block_sparse_moe.")
        layers.append(pair(at, kimi_mixer(c, kind, hidden, at + "self_attn."), ffn))
    return plan_with(c, prefix, layers)


def ling_mixer(c, i, is_full, hidden, at):
    theta, is_delta = float(c["rope_theta"]), "short_conv_kernel_size" in c
    heads, dim = c["num_attention_heads"], c["head_dim"]
    if is_full:
        rope = {"theta": theta, "neighbours": c.get("rope_interleave", True)}
        return latents_of(c, hidden, at, names={"o": "dense.weight"}, gated=is_delta, **rope)
    if is_delta:
        sizes = {"key_heads": heads, "value_heads": heads, "key_dim": dim, "value_dim": dim}
        floor = float(c["kda_lower_bound"]) if c.get("kda_safe_gate", True) else 0.0
        taps = c["short_conv_kernel_size"]
        return Kda(hidden, at, **sizes, taps=taps, floor=floor, eps=c["rms_norm_eps"])
    names = {
        "qkv": "query_key_value.weight",
        "q_norm": "query_layernorm.weight",
        "k_norm": "key_layernorm.weight",
        "gate": "g_proj.weight",
        "norm": "g_norm.weight",
        "out": "dense.weight",
    }
    return Lightning(
        hidden,
        at,
        names,
        heads=heads,
        head_dim=dim,
        pace=1 - (i - 1) / (c["num_hidden_layers"] - 1) + 1e-5,
        eps=c["rms_norm_eps"],
        rope_dims=int(dim * c["partial_rotary_factor"]),
        theta=theta,
        groups=c["group_norm_size"],
    )


def ling_moe(c, i, hidden, at):
    names = {role: f"experts.{{}}.{role}_proj.weight" for role in ("gate", "up", "down")}
    names["bias"] = "gate.expert_bias"
    limit, shared_limit = (
        float((c.get(key) or [0.0] * (i + 1))[i])
        for key in ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list")
    )
    width = c["moe_intermediate_size"]
    own = {"width": width * c["num_shared_experts"], "term": "shared_mlp", "limit": shared_limit}
    return Moe(
        hidden,
        at,
        names,
        kind="gated",
        experts=c["num_experts"],
        top_k=c["num_experts_per_tok"],
        width=width,
        score="sigmoid",
        norm=1e-20 if c.get("norm_topk_prob", True) else None,
        bias="select_f32",
        router_kind="linear_f32",
        groups=c["n_group"],
        top_groups=c["topk_group"],
        scale=float(c["routed_scaling_factor"]),
        limit=limit,
        shared=Mlp(hidden, at + "shared_experts.", **own),
    )


def bailing_hybrid(c, prefix, fused):
    hidden, layers = c["hidden_size"], []
    kinds = c.get("layer_types")
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        is_full = kinds[i] == "full_attention" if kinds else (i + 1) % c["layer_group_size"] == 0
        if i < c["first_k_dense_replace"]:
            ffn = Mlp(hidden, at + "mlp.", width=c["intermediate_size"])
        else:
            ffn = ling_moe(c, i, hidden, at + "mlp.")
        layers.append(pair(at, ling_mixer(c, i, is_full, hidden, at + "attention."), ffn))
    return plan_with(c, prefix, layers, embed=prefix + "word_embeddings.weight")
