"""Plans of families with linear attention of their own kinds; see reference_plans.py."""

from reference_ffn import Moe
from reference_lightning import Lightning
from reference_plans import Block, attention_of, kinds_of, plan_with, rope_of


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
