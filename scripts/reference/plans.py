"""What config.json of each family says: the layers, their parts and the names of their tensors.

A plan is a list of layers, a layer a list of blocks: h = h + multiplier * part(norm(h)), summed
over the parts of a block, which all read the same norm(h). With a post norm h = h + post_norm(that
sum), and with a factor, a tensor of one number, h is multiplied by it afterwards. With a low-rank
residual h = (h + norm(h) + its norm(right * left * norm(h))) / sqrt(2) after that. With several
streams (AltUp) h is the active one, and a block `to_others` adds to all but the first.
"""

import dataclasses

import numpy

from reference.attention import Attention
from reference.ffn import Mlp, Moe
from reference.ssd import Ssd


@dataclasses.dataclass
class LowRank:
    """A learned residual beside a block's part, "LAuReL": names of its tensors."""

    rank: int
    left: str
    right: str
    norm: str


@dataclasses.dataclass
class Block:
    norm: str | None
    parts: list
    post_norm: str | None = None
    factor: str | None = None
    carried: float | None = None  # h = carried * norm(h) + the sum
    part_norms: list | None = None  # of every part the names of its norms, before and after
    low_rank: LowRank | None = None
    to_others: bool = False


@dataclasses.dataclass
class LayerInputs:
    """For every layer a vector of a token: (embedding * scale + rms(projection of the common
    embedding / sqrt(hidden))) / sqrt(2)."""

    vocab: int
    width: int
    embed: str
    projection: str
    norm: str


@dataclasses.dataclass
class AltUp:
    """Several residual streams, of which each layer computes one and predicts the others."""

    streams: int
    active: int
    scales_output: bool
    prefix: str  # of all names

    def name(self, layer, role):
        return f"{self.prefix}layers.{layer}.altup.{role}"

    def layer_tensors(self, layer, hidden):
        n = self.streams
        yield self.name(layer, "correct_output_scale"), (hidden,), "norm"
        yield self.name(layer, "correction_coefs.weight"), (n, n), "linear"
        yield self.name(layer, "prediction_coefs.weight"), (n * n, n), "linear"
        yield self.name(layer, "modality_router.weight"), (n, hidden), "linear"
        yield self.name(layer, "router_norm.weight"), (hidden,), "norm"

    def projection(self, kind, stream):
        """kind: "altup_projections", or "altup_unembed_projections"."""
        return f"{self.prefix}{kind}.{stream - 1}.weight"

    def tensors(self, hidden):
        for kind in ("altup_projections", "altup_unembed_projections"):
            for stream in range(1, self.streams):
                yield self.projection(kind, stream), (hidden, hidden), "linear"


@dataclasses.dataclass
class Plan:
    vocab: int
    hidden: int
    eps: float
    embed: str
    final_norm: str
    head: str | None  # None: the embedding
    layers: list
    norm: str = "rms"  # "rms_1p": the weight is 1 + w; "layer": x is less its mean
    logits_cap: float | None = None
    layer_inputs: LayerInputs | None = None
    altup: AltUp | None = None
    multipliers: dict = dataclasses.field(default_factory=dict)

    def parts(self):
        return [part for blocks in self.layers for block in blocks for part in block.parts]

    @property
    def norm_kind(self):
        return "norm_1p" if self.norm == "rms_1p" else "norm"

    def layer_tensors(self):
        """(name, shape, kind) of every tensor of a layer, in file order."""
        for layer, blocks in enumerate(self.layers):
            if self.altup:
                yield from self.altup.layer_tensors(layer, self.hidden)
            for block in blocks:
                if block.low_rank:
                    yield block.low_rank.left, (block.low_rank.rank, self.hidden), "linear"
                    yield block.low_rank.right, (self.hidden, block.low_rank.rank), "linear"
                    yield block.low_rank.norm, (self.hidden,), self.norm_kind
                if block.norm:
                    yield block.norm, (self.hidden,), self.norm_kind
                for part in block.parts:
                    yield from part.tensors()
                for names in block.part_norms or []:
                    for name in names:
                        yield name, (self.hidden,), self.norm_kind
                if block.post_norm:
                    yield block.post_norm, (self.hidden,), self.norm_kind
                if block.factor:
                    yield block.factor, (1,), "norm"

    def tensors(self):
        """(name, shape, kind) of every tensor, in file order."""
        yield self.embed, (self.vocab, self.hidden), "linear"
        if self.layer_inputs:
            width = len(self.layers) * self.layer_inputs.width
            yield self.layer_inputs.embed, (self.layer_inputs.vocab, width), "linear"
            yield self.layer_inputs.projection, (width, self.hidden), "linear"
            yield self.layer_inputs.norm, (self.layer_inputs.width,), "norm"
        if self.altup:
            yield from self.altup.tensors(self.hidden)
        yield from self.layer_tensors()
        yield self.final_norm, (self.hidden,), self.norm_kind
        if self.head:
            yield self.head, (self.vocab, self.hidden), "linear"


def first(c, *keys):
    """The value under the first key that is there and not null."""
    return next((c[key] for key in keys if c.get(key) is not None), None)


def plan_with(c, prefix, layers, **options):
    """A plan of layers; options of Plan where they are not the common ones."""
    own = {
        "vocab": c["vocab_size"],
        "hidden": c["hidden_size"],
        "eps": c.get("rms_norm_eps"),
        "embed": prefix + "embed_tokens.weight",
        "final_norm": prefix + "norm.weight",
        "head": None if c.get("tie_word_embeddings", False) else "lm_head.weight",
    }
    return Plan(**{**own, **options}, layers=layers)


def pair(at, mixer, ffn, norms=("input_layernorm", "post_attention_layernorm")):
    """A layer of two blocks, `at` before the names of their norms."""
    return [Block(f"{at}{norm}.weight", [part]) for norm, part in zip(norms, (mixer, ffn))]


def kinds_of(c, *keys):
    same = {"linear_attention": "mamba", "full_attention": "attention"}
    return [same.get(name, name) for name in first(c, *keys)]


def rope_of(c, head_dim, factor=1.0, theta=10000.0, layers=None):
    """`layers`: the kind of layer whose rope it is, where each kind has its own."""
    rope = first(c, "rope_parameters", "rope_scaling") or {}
    rope = rope.get(layers) or rope
    factor = first(rope, "partial_rotary_factor") or first(c, "partial_rotary_factor") or factor
    theta = first(rope, "rope_theta") or first(c, "rope_theta") or theta
    scaling = rope if rope.get("rope_type", "default") != "default" else None
    if scaling and scaling["rope_type"] == "proportional":
        factor = 1.0  # of the dimensions that turn, at speed zero or another
    return {"theta": float(theta), "rope_dims": int(head_dim * factor), "scaling": scaling}


def attention_of(c, hidden, prefix, **options):
    heads = c["num_attention_heads"]
    options.setdefault("head_dim", first(c, "head_dim", "attention_head_dim") or hidden // heads)
    kv_heads = c.get("num_key_value_heads") or heads
    return Attention(hidden, prefix, heads=heads, kv_heads=kv_heads, **options)


def limits_of(c):
    low, high = c.get("time_step_limit") or (0.0, numpy.inf)
    return float(low), float(high)


def mamba_of(c, hidden, prefix, eps, **options):
    """The Mamba-2 mixer as granite, bamba and falcon_h1 spell it."""
    width = c["mamba_d_head"]
    if width == "auto":
        inner = c.get("mamba_d_ssm") or c["mamba_expand"] * hidden
        width = inner // c["mamba_n_heads"]
    return Ssd(
        hidden,
        prefix,
        heads=c["mamba_n_heads"],
        width=width,
        groups=c.get("mamba_n_groups", 1),
        states=c["mamba_d_state"],
        taps=c.get("mamba_d_conv", 4),
        conv_bias=c.get("mamba_conv_bias", True),
        limits=limits_of(c),
        eps=eps,
        **options,
    )


def granite_ffn(c, hidden, at):
    own = {"gate_up": "input_linear.weight", "down": "output_linear.weight"}
    wide = c["shared_intermediate_size"]
    term = {"term": "shared_mlp", "kind": "fused"}
    shared = Mlp(hidden, at + "shared_mlp.", width=wide, **term)
    shared.name["down"] = at + "shared_mlp.output_linear.weight"
    if not c.get("num_local_experts"):
        return shared
    names = {**own, "router": "router.layer.weight"}
    k, width = c["num_experts_per_tok"], c["intermediate_size"]
    options = {"experts": c["num_local_experts"], "top_k": k, "width": width, "shared": shared}
    moe = at + "block_sparse_moe."
    return Moe(hidden, moe, names, kind="fused", norm="softmax", **options)


def granite(c, prefix, fused):
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    has_rope = c.get("position_embedding_type") == "rope"
    rope = rope_of(c, head_dim) if has_rope else {}
    own = {"multiplier": float(c["attention_multiplier"]), "head_dim": head_dim}
    layers = []
    for i, kind in enumerate(kinds_of(c, "layer_types")):
        at = f"{prefix}layers.{i}."
        if kind == "mamba":
            mixer = mamba_of(c, hidden, at + "mamba.", eps)
        else:
            mixer = attention_of(c, hidden, at + "self_attn.", **own, **rope)
        ffn = granite_ffn(c, hidden, at)
        layers.append(pair(at, mixer, ffn))
    return plan_with(c, prefix, layers, multipliers=granite_factors(c))


def granite_factors(c):
    keys = ("embedding_multiplier", "residual_multiplier", "logits_scaling")
    return {key: float(c[key]) for key in keys if key in c}


def nemotron_letters(c):
    if "hybrid_override_pattern" in c:
        return c["hybrid_override_pattern"]
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    return "".join(letters[kind] for kind in kinds_of(c, "layers_block_type", "layer_types"))


def nemotron_moe(c, hidden, at):
    names = {
        "bias": "gate.e_score_correction_bias",
        "up": "experts.{}.up_proj.weight",
        "down": "experts.{}.down_proj.weight",
        "latent_in": "fc1_latent_proj.weight",
        "latent_out": "fc2_latent_proj.weight",
    }
    shared = None
    if c.get("n_shared_experts", 1):
        wide = c["moe_shared_expert_intermediate_size"]
        shared = Mlp(hidden, at + "shared_experts.", width=wide, kind="relu2", term="shared_mlp")
    return Moe(
        hidden,
        at,
        names,
        kind="relu2",
        experts=c["n_routed_experts"],
        top_k=c["num_experts_per_tok"],
        width=c["moe_intermediate_size"],
        score="sigmoid",
        norm=1e-20 if c.get("norm_topk_prob", True) else None,
        bias="select_f32",
        router_kind="linear_f32",
        groups=c.get("n_group", 1),
        top_groups=c.get("topk_group", 1),
        scale=float(c.get("routed_scaling_factor", 1.0)),
        latent=c.get("moe_latent_size") or 0,
        shared=shared,
    )


def nemotron_part(c, letter, hidden, eps, at):
    if letter == "M":
        return Ssd(
            hidden,
            at,
            heads=c["mamba_num_heads"],
            width=c["mamba_head_dim"],
            groups=first(c, "n_groups", "mamba_num_groups"),
            states=first(c, "ssm_state_size", "mamba_state_dim"),
            taps=c.get("conv_kernel", 4),
            conv_bias=c.get("use_conv_bias", True),
            limits=limits_of(c),
            eps=eps,
        )
    if letter == "*":
        return attention_of(c, hidden, at)
    if letter == "-":
        return Mlp(hidden, at, width=c["intermediate_size"], kind="relu2")
    return nemotron_moe(c, hidden, at)


def nemotron(c, prefix, fused):
    hidden, eps = c["hidden_size"], first(c, "layer_norm_epsilon", "norm_eps")
    layers = []
    for i, letter in enumerate(nemotron_letters(c)):
        at = f"{prefix}layers.{i}."
        part = nemotron_part(c, letter, hidden, eps, at + "mixer.")
        layers.append([Block(at + "norm.weight", [part])])
    names = {"embed": prefix + "embeddings.weight", "final_norm": prefix + "norm_f.weight"}
    return plan_with(c, prefix, layers, eps=eps, **names)


def bamba(c, prefix, fused):
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    rope = rope_of(c, head_dim, 0.5)
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        if "attn_layer_indices" in c:
            is_attention = i in (c["attn_layer_indices"] or [])
        else:
            is_attention = kinds_of(c, "layers_block_type", "layer_types")[i] == "attention"
        if is_attention:
            mixer = attention_of(c, hidden, at + "self_attn.", head_dim=head_dim, **rope)
        else:
            mixer = mamba_of(c, hidden, at + "mamba.", eps)
        ffn = Mlp(hidden, at + "feed_forward.", width=c["intermediate_size"])
        layers.append(pair(at, mixer, ffn, ("input_layernorm", "pre_ff_layernorm")))
    return plan_with(c, prefix, layers, final_norm=prefix + "final_layernorm.weight")


def falcon_mamba(c, hidden, at, eps):
    factors = {
        "in": ("ssm_in_multiplier", c["ssm_in_multiplier"]),
        "out": ("ssm_out_multiplier", c["ssm_out_multiplier"]),
    }
    for place, value in zip(("z", "x", "b", "c", "dt"), c["ssm_multipliers"]):
        factors[place] = ("ssm_multiplier_" + place, value)
    order = "norm_first" if c.get("mamba_norm_before_gate", True) else "gate_first"
    norm = order if c.get("mamba_rms_norm", False) else None
    return mamba_of(c, hidden, at, eps, norm=norm, factors=factors)


def falcon_h1(c, prefix, fused):
    """Mamba-2 and attention side by side, after one norm, in every layer."""
    hidden, eps = c["hidden_size"], c["rms_norm_eps"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    attention_factors = {
        "in": ("attention_in_multiplier", c["attention_in_multiplier"]),
        "k": ("key_multiplier", c["key_multiplier"]),
        "out": ("attention_out_multiplier", c["attention_out_multiplier"]),
    }
    gate, down = c["mlp_multipliers"]
    mlp_factors = {"gate": ("mlp_gate_multiplier", gate), "out": ("mlp_down_multiplier", down)}
    own = {"head_dim": head_dim, "factors": attention_factors, **rope_of(c, head_dim)}
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        mamba = falcon_mamba(c, hidden, at + "mamba.", eps)
        attention = attention_of(c, hidden, at + "self_attn.", **own)
        width = c["intermediate_size"]
        ffn = Mlp(hidden, at + "feed_forward.", width=width, factors=mlp_factors)
        mixers = Block(at + "input_layernorm.weight", [mamba, attention])
        layers.append([mixers, Block(at + "pre_ff_layernorm.weight", [ffn])])
    keys = ("embedding_multiplier", "lm_head_multiplier")
    multipliers = {key: float(c.get(key, 1.0)) for key in keys}
    final_norm = prefix + "final_layernorm.weight"
    return plan_with(c, prefix, layers, final_norm=final_norm, multipliers=multipliers)


def llama(c, prefix, fused):
    """Llama, Granite and Qwen2: attention and a feed-forward in every layer, Granite's with
    factors, Qwen2's with biases."""
    hidden = c["hidden_size"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    own = {"head_dim": head_dim, **rope_of(c, head_dim)}
    if "attention_multiplier" in c:
        own["multiplier"] = float(c["attention_multiplier"])
    if c["model_type"] == "qwen2":
        own["biases"] = "qkv"
    layers = []
    for i in range(c["num_hidden_layers"]):
        at = f"{prefix}layers.{i}."
        attention = attention_of(c, hidden, at + "self_attn.", **own)
        layers.append(pair(at, attention, Mlp(hidden, at + "mlp.", width=c["intermediate_size"])))
    return plan_with(c, prefix, layers, multipliers=granite_factors(c))
