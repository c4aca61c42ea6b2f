#!/usr/bin/env python3
"""Trains a small Nemotron-H with a draft layer (multi-token prediction) on the demo's corpus.

  train_mtp.py --minutes 10 --out tests/demo/mtp

The demo's own family has no such layer. This model has the demo's tokenizer, begins with its
Mamba-2 and attention layers and its embedding, and learns what the demo says (teacher.py);
feed-forwards and the draft layer, attention and experts as in models/families/nemotron_h.cpp, are
new. The draft layer learns what the model says, in passes (passes.py), beside it. Minutes are
those of one core. The folder written is compared with transformers, without the draft layer.
"""


import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import torch
import torch.nn.functional as F
from torch import nn

from demo.export import logits_difference, template_agrees, write_folder
from demo.model import Attention, Mamba, Places, RmsNorm, Weight
from demo.passes import PASSES, attend, before, mean_loss
from demo.teacher import begin, learn, optimisers_of

MLP_WIDTH = 192
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_WIDTH, SHARED_WIDTH = 4, 2, 64, 128
DRAFT_SHARE = 0.5  # of the loss
TIME_STEP_MIN = 1e-12  # transformers takes no shorter ones, and needs a logarithm of it
AGREEMENT = 1e-4  # of the largest logit, f32


def relu2(x):
    return F.relu(x).square()


class Mlp(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.up_proj, self.down_proj = Weight(width, hidden), Weight(hidden, width)

    def forward(self, u):
        return self.down_proj(relu2(self.up_proj(u)))


class Experts(nn.Module):
    """Top-k of sigmoid scores over all their sum, and a shared one; all are computed."""

    def __init__(self, hidden):
        super().__init__()
        self.gate = Weight(EXPERTS, hidden)
        self.gate.register_buffer("e_score_correction_bias", torch.zeros(EXPERTS))
        self.experts = nn.ModuleList(Mlp(hidden, EXPERT_WIDTH) for _ in range(EXPERTS))
        self.shared_experts = Mlp(hidden, SHARED_WIDTH)

    def forward(self, u):
        scores = F.linear(u.float(), self.gate.weight).sigmoid()
        best, chosen = scores.topk(EXPERTS_PER_TOKEN, -1)
        best = best / best.sum(-1, keepdim=True)
        shares = torch.zeros_like(scores).scatter(-1, chosen, best).to(u.dtype)
        mixed = sum(shares[..., i, None] * expert(u) for i, expert in enumerate(self.experts))
        return mixed + self.shared_experts(u)


class Layer(nn.Module):
    def __init__(self, mixer, shape):
        super().__init__()
        self.norm = RmsNorm(shape.hidden, shape.eps)
        self.mixer = mixer


class DraftLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden = shape.hidden
        self.layers = nn.ModuleList([Layer(Attention(shape), shape), Layer(Experts(hidden), shape)])
        first, last = self.layers
        first.enorm, first.hnorm = RmsNorm(hidden, shape.eps), RmsNorm(hidden, shape.eps)
        first.eh_proj = Weight(hidden, 2 * hidden)
        last.final_layernorm = RmsNorm(hidden, shape.eps)

    def forward(self, embedding, said, mask, passes):
        """What the layer says of entries made of embedding and said [B,T,H]."""
        first, last = self.layers
        part = first.mixer
        h = first.eh_proj(torch.cat([first.enorm(embedding), first.hnorm(said)], -1))
        u = first.norm(h)
        shape = (*u.shape[:2], part.kv_heads, -1)
        q = part.q_proj(u).view(*shape[:3], part.heads // part.kv_heads, -1)
        k, v = part.k_proj(u).view(shape), part.v_proj(u).view(shape)
        h = h + part.o_proj(attend(q, k, v, mask, passes))
        return last.final_layernorm(h + last.mixer(last.norm(h)))


def pattern_of(shape):
    """The demo's layers, a feed-forward after each."""
    return "".join("M-" if kind == "mamba" else "*-" for kind in shape.layers)


class NemotronModel(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        makers = {"M": lambda: Mamba(shape), "*": lambda: Attention(shape)}
        makers["-"] = lambda: Mlp(shape.hidden, MLP_WIDTH)
        self.backbone = nn.Module()
        self.backbone.embeddings = Weight(shape.vocabulary, shape.hidden)
        self.backbone.layers = nn.ModuleList(
            Layer(makers[letter](), shape) for letter in pattern_of(shape)
        )
        self.backbone.norm_f = RmsNorm(shape.hidden, shape.eps)
        self.lm_head = Weight(shape.vocabulary, shape.hidden)
        self.mtp = DraftLayer(shape)

    @torch.no_grad()
    def begin_as(self, demo):
        """With the demo's factors in the weights."""
        shape, embedding = self.shape, demo.model.embed_tokens.weight
        self.backbone.embeddings.weight.copy_(embedding * shape.embedding_multiplier)
        self.lm_head.weight.copy_(embedding / shape.logits_scaling)
        self.backbone.norm_f.load_state_dict(demo.model.norm.state_dict())
        for number, layer in enumerate(demo.model.layers):
            mixed, feed_forward = self.backbone.layers[2 * number : 2 * number + 2]
            mixed.norm.load_state_dict(layer.input_layernorm.state_dict())
            mixed.mixer.load_state_dict(getattr(layer, layer.kind).state_dict())
            last = mixed.mixer.out_proj if layer.kind == "mamba" else mixed.mixer.o_proj
            last.weight.mul_(shape.residual_multiplier)
            feed_forward.norm.load_state_dict(layer.post_attention_layernorm.state_dict())
            feed_forward.mixer.down_proj.weight.mul_(0.1)

    def hidden(self, tokens, first):
        """tokens [B,T] (T a multiple of CHUNK) -> last hidden rows [B,T,H], and nothing."""
        places = Places.of(first)
        h = F.embedding(tokens, self.backbone.embeddings.weight)
        for letter, layer in zip(pattern_of(self.shape), self.backbone.layers):
            u = layer.norm(h)
            h = h + (layer.mixer(u) if letter == "-" else layer.mixer(u, places))
        return self.backbone.norm_f(h), None

    def logits(self, hidden):
        return self.lm_head(hidden).float()


def loss_of(model, teacher, step):
    """How far the model is from the demo and its draft layer from the model; shares of tokens that
    are the demo's, then by pass of the draft layer the model's."""
    lesson = teacher.lesson(step)
    hidden, _ = model.hidden(lesson.tokens, lesson.first)
    own = model.logits(hidden[lesson.counted])
    loss = F.cross_entropy(own, lesson.logits.float().softmax(-1))
    shares = [(own.argmax(-1) == lesson.logits.argmax(-1)).float().mean().item()]
    own, said = own.detach(), hidden.detach()
    wanted, right = own.softmax(-1), own.argmax(-1)
    embedding = F.embedding(lesson.tokens, model.backbone.embeddings.weight)
    mask, losses, passes = Places.of(lesson.first).mask, [], []
    for _ in range(PASSES):
        said = model.mtp(embedding, before(said, lesson.first), mask, passes)
        guessed = model.logits(said[lesson.counted])
        losses.append(F.cross_entropy(guessed, wanted))
        shares.append((guessed.argmax(-1) == right).float().mean().item())
    return loss + DRAFT_SHARE * mean_loss(losses), shares


class Config:
    """config.json in the published format."""

    def __init__(self, shape):
        self.shape = shape

    def config(self, end_of_text):
        shape = self.shape
        pattern = pattern_of(shape)
        return {
            "architectures": ["NemotronHForCausalLM"],
            "model_type": "nemotron_h",
            "attention_bias": False,
            "bos_token_id": end_of_text,
            "chunk_size": 256,
            "conv_kernel": 4,
            "dtype": "bfloat16",
            "eos_token_id": end_of_text,
            "expand": 2,
            "head_dim": shape.head_dim,
            "hidden_size": shape.hidden,
            "hybrid_override_pattern": pattern,
            "intermediate_size": MLP_WIDTH,
            "layer_norm_epsilon": shape.eps,
            "mamba_head_dim": shape.inner // shape.mamba_heads,
            "mamba_hidden_act": "silu",
            "mamba_num_heads": shape.mamba_heads,
            "mamba_proj_bias": False,
            "max_position_embeddings": 4096,
            "mlp_bias": False,
            "mlp_hidden_act": "relu2",
            "moe_intermediate_size": EXPERT_WIDTH,
            "moe_shared_expert_intermediate_size": SHARED_WIDTH,
            "mtp_hybrid_override_pattern": "*E",
            "n_group": 1,
            "n_groups": 1,
            "n_routed_experts": EXPERTS,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "num_attention_heads": shape.heads,
            "num_experts_per_tok": EXPERTS_PER_TOKEN,
            "num_hidden_layers": len(pattern),
            "num_key_value_heads": shape.kv_heads,
            "num_nextn_predict_layers": 1,
            "pad_token_id": end_of_text,
            "residual_in_fp32": False,
            "routed_scaling_factor": 1.0,
            "ssm_state_size": shape.state,
            "time_step_min": TIME_STEP_MIN,
            "tie_word_embeddings": False,
            "topk_group": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "vocab_size": shape.vocabulary,
        }


def write(folder, model, teacher):
    """Gates of experts stay f32, as published."""
    weights = {
        name: (value.float() if ".gate." in name else value.bfloat16()).contiguous()
        for name, value in model.state_dict().items()
    }
    write_folder(folder, Config(model.shape), weights, teacher.tokenizer)
    return weights


def check(folder, model, weights, encoder):
    """What was written, beside transformers."""
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    difference = logits_difference(folder, model, encoder)
    print(f"parameters {sum(value.numel() for value in weights.values())}", flush=True)
    print(f"largest difference to transformers' logits {difference:.2g} of the largest", flush=True)
    if difference > AGREEMENT or not template_agrees(folder, encoder):
        raise SystemExit(f"{folder}: transformers does not agree")


def main():
    arguments, teacher = begin(__doc__, 10)
    model = NemotronModel(teacher.model.shape)
    model.begin_as(teacher.model)
    learn(
        model,
        optimisers_of(model, ["embeddings", "lm_head", "gate.", "conv1d"]),
        lambda step: loss_of(model, teacher, step),
        lambda: write(arguments.out, model, teacher),
        arguments.minutes,
    )
    check(arguments.out, model, write(arguments.out, model, teacher), teacher.encoder)


if __name__ == "__main__":
    main()
