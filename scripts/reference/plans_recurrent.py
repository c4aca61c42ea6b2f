"""As plans.py: Mamba, Mamba-2, Falcon Mamba and Jamba."""

from reference.ffn import Mlp, Moe
from reference.plans import Block, attention_of, limits_of, pair, plan_with
from reference.s6 import S6
from reference.ssd import Ssd


def mixers(c, prefix, mixer_of):
    """A model of layers with one mixer each, mixer_of(at, eps); as Mamba spells all around it."""
    eps = c["layer_norm_epsilon"]
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        layers.append([Block(at + "norm.weight", [mixer_of(at + "mixer.", eps)])])
    names = {"embed": prefix + "embeddings.weight", "final_norm": prefix + "norm_f.weight"}
    return plan_with(c, prefix, layers, eps=eps, **names)


def mamba2(c, prefix, fused):
    sizes = {"heads": "num_heads", "width": "head_dim", "groups": "n_groups"}
    sizes.update(states="state_size", taps="conv_kernel", conv_bias="use_conv_bias")
    options = {option: c[key] for option, key in sizes.items()}
    options["limits"] = limits_of(c)
    return mixers(c, prefix, lambda at, eps: Ssd(c["hidden_size"], at, eps=eps, **options))


def rank_of(c, key):
    rank = c.get(key, "auto")
    return -(-c["hidden_size"] // 16) if rank == "auto" else rank


def mamba(c, prefix, fused):
    options = {"states": c["state_size"], "taps": c["conv_kernel"]}
    options.update(rank=rank_of(c, "time_step_rank"), conv_bias=c["use_conv_bias"])
    options["channels"] = c.get("intermediate_size") or c["expand"] * c["hidden_size"]
    if c["model_type"] == "falcon_mamba":
        options.update(norms="plain", eps=c.get("mixer_rms_eps", 1e-6))
    plan = mixers(c, prefix, lambda at, _: S6(c["hidden_size"], at, **options))
    plan.head = None if c.get("tie_word_embeddings", True) else "lm_head.weight"
    return plan


def jamba_ffn(c, layer, hidden, at, fused):
    width = c["intermediate_size"]
    is_sparse = layer % c["expert_layer_period"] == c["expert_layer_offset"]
    if not is_sparse or c["num_experts"] == 1:
        return Mlp(hidden, at, width=width)
    names = {"router": "router.weight"}
    if fused:
        names.update(gate_up="experts.gate_up_proj", down="experts.down_proj")
    else:
        names.update({each: f"experts.{{}}.{each}_proj.weight" for each in ("gate", "up", "down")})
    options = {"experts": c["num_experts"], "top_k": c["num_experts_per_tok"], "score": "softmax"}
    return Moe(hidden, at, names, kind="fused" if fused else "gated", width=width, **options)


def jamba(c, prefix, fused):
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        if i % c["attn_layer_period"] == c["attn_layer_offset"]:
            mixer = attention_of(c, hidden, at + "self_attn.")
        else:
            mixer = S6(
                hidden,
                at + "mamba.",
                channels=c["mamba_expand"] * hidden,
                states=c["mamba_d_state"],
                rank=rank_of(c, "mamba_dt_rank"),
                taps=c["mamba_d_conv"],
                conv_bias=c["mamba_conv_bias"],
                norms="weighted",
                eps=eps,
            )
        ffn = jamba_ffn(c, i, hidden, at + "feed_forward.", fused)
        layers.append(pair(at, mixer, ffn, ("input_layernorm", "pre_ff_layernorm")))
    return plan_with(c, prefix, layers, final_norm=prefix + "final_layernorm.weight")
