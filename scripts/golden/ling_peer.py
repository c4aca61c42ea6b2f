"""Ling's models for transformers_peer: what transformers' class of them, which is that of 3.0,
does not have: the published code's lightning attention, rope by halves, limits of gates and ups."""


def lightning(config, layer, partial):
    """As BailingMoeV2_5LinearAttention of the published code, token by token."""
    import torch
    from torch import nn
    from transformers.models.bailing_hybrid import modeling_bailing_hybrid as made

    class Lightning(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads, self.dim = config.num_attention_heads, config.linear_head_dim
            inner = self.heads * self.dim
            linear = lambda rows, width: nn.Linear(width, rows, bias=False)
            self.query_key_value = linear(3 * inner, config.hidden_size)
            self.g_proj = linear(inner, config.hidden_size)
            self.o_proj = linear(config.hidden_size, inner)
            norm = lambda width: made.BailingHybridRMSNorm(width, eps=config.rms_norm_eps)
            self.query_layernorm, self.key_layernorm = norm(self.dim), norm(self.dim)
            self.g_norm = norm(inner)

        def turned(self, x):
            dims = int(self.dim * partial)
            base = config.rope_parameters["rope_theta"]
            speeds = base ** (-torch.arange(0, dims, 2, dtype=torch.float) / dims)
            angles = torch.arange(x.shape[1], dtype=torch.float)[:, None] * speeds
            angles = torch.cat([angles, angles], -1)[None, :, None]
            own, rest = x[..., :dims].float(), x[..., dims:]
            half = torch.cat([-own[..., dims // 2 :], own[..., : dims // 2]], -1)
            return torch.cat([(own * angles.cos() + half * angles.sin()).to(x.dtype), rest], -1)

        def paces(self):
            start = 2 ** (-(2 ** -(torch.tensor(float(self.heads)).log2() - 3)))
            slopes = start ** torch.arange(1, self.heads + 1)
            return -slopes * (1 - (layer - 1) / (config.num_hidden_layers - 1) + 1e-5)

        def forward(self, hidden_states, **_):
            shape = (*hidden_states.shape[:2], 3 * self.heads, self.dim)
            q, k, v = self.query_key_value(hidden_states).view(shape).split(self.heads, 2)
            q = self.turned(self.query_layernorm(q)).float() * self.dim**-0.5
            k = self.turned(self.key_layernorm(k)).float()
            keep = self.paces().exp()[:, None, None]
            state, out = 0.0, []
            for t in range(shape[1]):
                pair = torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t].float())
                state = keep * state + pair
                out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
            y = torch.stack(out, 1).reshape(*shape[:2], config.group_norm_size, -1)
            y = y * (y.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
            y = self.g_norm.weight * y.reshape(*shape[:2], -1).to(hidden_states.dtype)
            return self.o_proj(y * torch.sigmoid(self.g_proj(hidden_states)))

    return Lightning()


def by_halves(q, k, cos, sin):
    """The rope of pairs (i, i + half)."""
    import torch

    def turned(x):
        low, high = x.chunk(2, -1)
        return x * cos.unsqueeze(1) + torch.cat([-high, low], -1) * sin.unsqueeze(1)

    return turned(q), turned(k)


def limited(gate, up, limit):
    import torch

    gate = torch.nn.functional.silu(gate)
    return gate.clamp(max=limit) * up.clamp(-limit, limit) if limit else gate * up


def limit_layer(mlp, routed, shared):
    """As vLLM's model of Ling 3.0 has it."""
    import torch

    own, experts = mlp.shared_experts, mlp.experts

    def run_shared(x):
        return own.down_proj(limited(own.gate_proj(x), own.up_proj(x), shared))

    def run_experts(x, chosen, weights):
        y = torch.zeros_like(x)
        for t in range(len(x)):
            for expert, weight in zip(chosen[t], weights[t]):
                gate, up = (experts.gate_up_proj[expert] @ x[t]).chunk(2)
                wide = limited(gate, up, routed)
                y[t] += (weight * (experts.down_proj[expert] @ wide)).to(y.dtype)
        return y

    own.forward, experts.forward = run_shared, run_experts


def model_class(config):
    """Of config.json's values."""
    import torch
    from transformers.models.bailing_hybrid import modeling_bailing_hybrid as made

    is_lightning = "short_conv_kernel_size" not in config
    keys = ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list")
    limits = [config.get(key) for key in keys]
    if not hasattr(made, "by_neighbours"):
        made.by_neighbours = made.apply_rotary_pos_emb_interleave
    interleaves = config.get("rope_interleave", True)
    made.apply_rotary_pos_emb_interleave = made.by_neighbours if interleaves else by_halves

    class Open(torch.nn.Module):
        """Gates that are one."""

        def forward(self, x):
            return torch.full((*x.shape[:2], config["num_attention_heads"]), torch.inf)

    class Ling(made.BailingHybridForCausalLM):
        def __init__(self, own):
            super().__init__(own)
            for i, layer in enumerate(self.model.layers):
                if is_lightning and own.layer_types[i] == "full_attention":
                    layer.self_attn.g_proj = Open()
                elif is_lightning:
                    layer.self_attn = lightning(own, i, config["partial_rotary_factor"])
                if any(limits) and own.mlp_layer_types[i] == "sparse":
                    limit_layer(layer.mlp, *(each[i] if each else 0 for each in limits))

    Ling.__module__ = made.__name__  # whose names of tensors are those of its files
    return Ling
