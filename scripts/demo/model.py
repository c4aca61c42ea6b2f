"""The demo model in torch: a small GraniteMoeHybrid written for training speed.

Parameter names are those of the published checkpoints ("model.layers.0.mamba.in_proj.weight"), so
that the state dict is the export. Two things differ from a plain implementation, neither changes
the result: the SSD recurrence is computed in chunks with matrix products, and all experts are
computed as one wide gated MLP whose columns are weighted by the router (cheaper than sorting tokens
at this size). Several chats may share one row: `first` marks the first token of each, and nothing
crosses it.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

RESET_LOG_DECAY = -60.0  # exp(-60) forgets the chat before; small enough to keep f32 sums exact
CHUNK = 32
LAYERS = ["mamba", "mamba", "attention", "mamba", "attention", "mamba", "attention"]


@dataclass
class Shape:
    """Sizes of the model; `config()` turns them into config.json."""

    vocabulary: int = 1200
    hidden: int = 128
    layers: list = field(default_factory=lambda: list(LAYERS))
    heads: int = 4
    kv_heads: int = 2
    mamba_heads: int = 8
    state: int = 32
    experts: int = 4
    experts_per_token: int = 2
    expert_width: int = 64
    shared_width: int = 128
    embedding_multiplier: float = 8.0
    residual_multiplier: float = 0.5
    logits_scaling: float = 2.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def inner(self):
        return 2 * self.hidden

    def config(self, end_of_text):
        """config.json in the published format."""
        return {
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "model_type": "granitemoehybrid",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attention_multiplier": self.head_dim**-0.5,
            "bos_token_id": end_of_text,
            "dtype": "bfloat16",
            "embedding_multiplier": self.embedding_multiplier,
            "eos_token_id": end_of_text,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.1,
            "intermediate_size": self.expert_width,
            "layer_types": list(self.layers),
            "logits_scaling": self.logits_scaling,
            "mamba_chunk_size": 256,
            "mamba_conv_bias": True,
            "mamba_d_conv": 4,
            "mamba_d_head": self.inner // self.mamba_heads,
            "mamba_d_state": self.state,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": self.mamba_heads,
            "mamba_proj_bias": False,
            "max_position_embeddings": 4096,
            "num_attention_heads": self.heads,
            "num_experts_per_tok": self.experts_per_token,
            "num_hidden_layers": len(self.layers),
            "num_key_value_heads": self.kv_heads,
            "num_local_experts": self.experts,
            "output_router_logits": False,
            "pad_token_id": end_of_text,
            "position_embedding_type": "nope",
            "residual_multiplier": self.residual_multiplier,
            "rms_norm_eps": self.eps,
            "rope_scaling": None,
            "rope_theta": 10000,
            "router_aux_loss_coef": 0.01,
            "shared_intermediate_size": self.shared_width,
            "tie_word_embeddings": True,
            "use_cache": True,
            "vocab_size": self.vocabulary,
        }


SIZES = {
    "demo": {},
    # The model that drafts for the demo: two layers of half the width.
    "drafter": {
        "hidden": 64,
        "layers": ["mamba", "attention"],
        "heads": 2,
        "kv_heads": 1,
        "mamba_heads": 4,
        "experts": 2,
        "experts_per_token": 1,
        "expert_width": 64,
    },
    # Rows of 256 values, which every group of a quantised format divides.
    "large": {
        "hidden": 256,
        "layers": ["mamba", *LAYERS],
        "heads": 8,
        "kv_heads": 4,
        "state": 64,
        "expert_width": 128,
        "shared_width": 256,
    },
}


def shape_of(vocabulary, size="demo"):
    """The shape of one of SIZES."""
    return Shape(vocabulary=vocabulary, **SIZES[size])


class Weight(nn.Module):
    """A parameter named `weight` (and `bias`), drawn with the given deviation."""

    def __init__(self, *sizes, deviation=None, bias=False):
        super().__init__()
        deviation = sizes[-1] ** -0.5 if deviation is None else deviation
        self.weight = nn.Parameter(torch.randn(*sizes) * deviation)
        if bias:
            self.bias = nn.Parameter(torch.zeros(sizes[0]))

    def forward(self, x):
        return F.linear(x, self.weight)


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def ssd(x, log_decay, b, c):
    """y_t = S_t c_t with S_t = exp(log_decay_t) S_(t-1) + x_t b_t^T, from S = 0, in chunks.

    x [B,T,h,P] (already times dt), log_decay [B,T,h] <= 0, b and c [B,T,N]; returns [B,T,h,P].
    """
    rows, length, heads, width = x.shape
    chunks = length // CHUNK
    x = x.view(rows, chunks, CHUNK, heads, width).transpose(2, 3)
    b = b.view(rows, chunks, 1, CHUNK, -1)
    c = c.view(rows, chunks, 1, CHUNK, -1)
    total = log_decay.view(rows, chunks, CHUNK, heads).transpose(2, 3).cumsum(-1)
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~causal, float("-inf")).exp()
    y = ((c @ b.transpose(-1, -2)) * decay) @ x
    if chunks == 1:
        return y.transpose(2, 3).reshape(rows, length, heads, width)
    end = total[..., -1]
    made = b.transpose(-1, -2) @ (x * (end.unsqueeze(-1) - total).exp().unsqueeze(-1))
    carried = end.transpose(1, 2).cumsum(-1)
    # State that enters chunk i: sum over j < i of exp(decay of chunks j+1 .. i-1) made_j.
    before = F.pad(carried, (1, 0))[..., :-1]
    earlier = torch.ones(chunks, chunks, dtype=torch.bool, device=x.device).tril(-1)
    across = (
        (before.unsqueeze(-1) - carried.unsqueeze(-2)).masked_fill(~earlier, float("-inf")).exp()
    )
    entering = across @ made.transpose(1, 2).reshape(rows, heads, chunks, -1)
    entering = entering.view(rows, heads, chunks, made.shape[-2], width).transpose(1, 2)
    y = y + (c @ entering) * total.exp().unsqueeze(-1)
    return y.transpose(2, 3).reshape(rows, length, heads, width)


class Mamba(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.state, self.inner = shape.mamba_heads, shape.state, shape.inner
        channels = self.inner + 2 * self.state
        self.in_proj = Weight(self.inner + channels + self.heads, shape.hidden)
        self.conv1d = Weight(channels, 1, 4, deviation=0.3, bias=True)
        dt = torch.exp(torch.linspace(-6.9, -2.3, self.heads))  # 0.001 .. 0.1
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.linspace(8.0, 1.0, self.heads)))
        self.D = nn.Parameter(torch.ones(self.heads))
        self.norm = RmsNorm(self.inner, shape.eps)
        self.out_proj = Weight(shape.hidden, self.inner)

    def conv(self, x, reach):
        """Causal depthwise, width 4; `reach` [3,B,T,1] is 1 where the tap 1, 2, 3 back counts."""
        taps = self.conv1d.weight
        y = x * taps[:, 0, 3] + self.conv1d.bias
        for back in (1, 2, 3):
            y = y + F.pad(x, (0, 0, back, 0))[:, :-back] * reach[back - 1] * taps[:, 0, 3 - back]
        return F.silu(y)

    def forward(self, u, places):
        rows, length, _ = u.shape
        z, xbc, dt = self.in_proj(u).split(
            [self.inner, self.inner + 2 * self.state, self.heads], -1
        )
        x, b, c = self.conv(xbc, places.reach).split([self.inner, self.state, self.state], -1)
        x = x.reshape(rows, length, self.heads, -1)
        dt = F.softplus(dt.float() + self.dt_bias)
        log_decay = places.reset - dt * self.A_log.exp()
        y = ssd(x * dt.unsqueeze(-1), log_decay, b, c) + x * self.D[:, None]
        return self.out_proj(self.norm(y.reshape(rows, length, -1) * F.silu(z)))


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.scale = shape.head_dim**-0.5
        self.q_proj = Weight(shape.heads * shape.head_dim, shape.hidden)
        self.k_proj = Weight(shape.kv_heads * shape.head_dim, shape.hidden)
        self.v_proj = Weight(shape.kv_heads * shape.head_dim, shape.hidden)
        self.o_proj = Weight(shape.hidden, shape.heads * shape.head_dim)

    def forward(self, u, places):
        rows, length, _ = u.shape
        q = self.q_proj(u).view(rows, length, self.kv_heads, self.heads // self.kv_heads, -1)
        k = self.k_proj(u).view(rows, length, self.kv_heads, 1, -1)
        v = self.v_proj(u).view(rows, length, self.kv_heads, 1, -1)
        q, k, v = (t.permute(0, 2, 3, 1, 4) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)).float() * self.scale + places.mask[:, None, None]
        out = scores.softmax(-1).to(v.dtype) @ v
        return self.o_proj(out.permute(0, 3, 1, 2, 4).reshape(rows, length, -1))


class Experts(nn.Module):
    """Top-k of E gated MLPs, evaluated as one gated MLP of width E*I with weighted columns."""

    def __init__(self, shape):
        super().__init__()
        self.count, self.top = shape.experts, shape.experts_per_token
        self.input_linear = Weight(shape.experts, 2 * shape.expert_width, shape.hidden)
        self.output_linear = Weight(shape.experts, shape.hidden, shape.expert_width)
        self.router = nn.Module()
        self.router.layer = Weight(shape.experts, shape.hidden)

    def forward(self, u):
        """Returns the mixture and the load-balance loss (1 when balanced)."""
        logits = F.linear(u.float(), self.router.layer.weight)
        best, chosen = logits.topk(self.top, -1)
        weights = torch.zeros_like(logits).scatter(-1, chosen, best.softmax(-1))
        load = (weights > 0).float().mean((0, 1)) / self.top
        balance = self.count * (load * logits.softmax(-1).mean((0, 1))).sum()
        hidden = F.linear(u, self.input_linear.weight.flatten(0, 1)).unflatten(
            -1, (self.count, 2, -1)
        )
        gate, up = hidden.unbind(-2)
        mixed = F.silu(gate) * up * weights.to(up.dtype).unsqueeze(-1)
        return (
            F.linear(mixed.flatten(-2), self.output_linear.weight.transpose(0, 1).flatten(1)),
            balance,
        )


class SharedMlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_linear = Weight(2 * shape.shared_width, shape.hidden)
        self.output_linear = Weight(shape.hidden, shape.shared_width)

    def forward(self, u):
        gate, up = self.input_linear(u).chunk(2, -1)
        return self.output_linear(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, kind, shape):
        super().__init__()
        self.residual = shape.residual_multiplier
        self.input_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.kind = "mamba" if kind == "mamba" else "self_attn"
        self.add_module(self.kind, Mamba(shape) if kind == "mamba" else Attention(shape))
        self.block_sparse_moe = Experts(shape)
        self.shared_mlp = SharedMlp(shape)

    def forward(self, h, places):
        mixer = getattr(self, self.kind)
        h = h + mixer(self.input_layernorm(h), places) * self.residual
        u = self.post_attention_layernorm(h)
        mixed, balance = self.block_sparse_moe(u)
        return h + (mixed + self.shared_mlp(u)) * self.residual, balance


@dataclass
class Places:
    """What the position of the chats in their rows means for conv, recurrence and attention."""

    reach: torch.Tensor  # [3,B,T,1]
    reset: torch.Tensor  # [B,T,1]
    mask: torch.Tensor  # [B,T,T], added to the scores

    @classmethod
    def of(cls, first):
        """first [B,T], true at the first token of each chat."""
        chat = first.long().cumsum(-1)
        reach = torch.stack(
            [F.pad(chat, (back, 0), value=-1)[:, :-back] == chat for back in (1, 2, 3)]
        )
        length = first.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=first.device).tril()
        seen = (chat[:, :, None] == chat[:, None, :]) & causal
        mask = torch.zeros(seen.shape, device=first.device).masked_fill(~seen, float("-inf"))
        return cls(reach.unsqueeze(-1).float(), first.unsqueeze(-1) * RESET_LOG_DECAY, mask)


class DemoModel(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = nn.Module()
        self.model.embed_tokens = Weight(shape.vocabulary, shape.hidden, deviation=0.1)
        self.model.layers = nn.ModuleList(Layer(kind, shape) for kind in shape.layers)
        self.model.norm = RmsNorm(shape.hidden, shape.eps)

    def hidden(self, tokens, first):
        """tokens [B,T] (T a multiple of CHUNK) -> last hidden rows [B,T,H], mean balance loss."""
        places = Places.of(first)
        h = F.embedding(tokens, self.model.embed_tokens.weight) * self.shape.embedding_multiplier
        balance = 0.0
        for layer in self.model.layers:
            h, layer_balance = layer(h, places)
            balance = balance + layer_balance / len(self.model.layers)
        return self.model.norm(h), balance

    def logits(self, hidden):
        return F.linear(hidden, self.model.embed_tokens.weight).float() / self.shape.logits_scaling

    def forward(self, tokens, first, targets):
        """Cross entropy over targets [B,T] that are not -1, and the balance loss."""
        hidden, balance = self.hidden(tokens, first)
        counted = targets >= 0
        return F.cross_entropy(self.logits(hidden[counted]), targets[counted]), balance
