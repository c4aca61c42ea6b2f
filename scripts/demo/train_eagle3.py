#!/usr/bin/env python3
"""Trains an EAGLE-3 head for the demo model and writes its folder.

  train_eagle3.py --minutes 5 --out tests/demo/eagle3

The head is the one of models/plan.h. It learns what the demo says of the synthetic corpus
(teacher.py), in passes (passes.py). Minutes are those of one core.
"""

import json
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from demo.crew import SHORT
from demo.model import Places, RmsNorm, Weight
from demo.passes import PASSES, attend, before, mean_loss
from demo.teacher import DRILLS, begin, learn, optimisers_of

HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 32, 256
VOCABULARY = 640
THETA = 10000.0


def rotated(x):
    """Rope of x [B,T,heads,HEAD_DIM] by the position in the row: only differences count."""
    half = HEAD_DIM // 2
    speeds = THETA ** (-torch.arange(half) / half)
    angle = (torch.arange(x.shape[1])[:, None] * speeds)[:, None]
    low, high = x.float().chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).to(x.dtype)


class Head(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.fc = Weight(width, 3 * width)
        layer = self.midlayer = nn.Module()
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            layer.add_module(name, RmsNorm(width, eps))
        attention = layer.self_attn = nn.Module()
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            attention.add_module(f"{name}_proj", Weight(heads * HEAD_DIM, 2 * width))
        attention.o_proj = Weight(width, HEADS * HEAD_DIM)
        mlp = layer.mlp = nn.Module()
        mlp.gate_proj, mlp.up_proj = Weight(INNER, width), Weight(INNER, width)
        mlp.down_proj = Weight(width, INNER)
        self.norm = RmsNorm(width, eps)
        self.lm_head = Weight(VOCABULARY, width)

    @torch.no_grad()
    def begin_as(self, model, kept):
        """With what enters the last of the three layers as the stream, and the demo's own head
        over its tokens `kept`."""
        width = model.shape.hidden
        self.fc.weight.mul_(0.1)
        self.fc.weight[:, 2 * width :] += torch.eye(width)
        self.norm.weight.copy_(model.model.norm.weight)
        embedding = model.model.embed_tokens.weight[kept]
        self.lm_head.weight.copy_(embedding / model.shape.logits_scaling)

    def forward(self, embedding, said, mask, passes):
        """The stream before the last norm, of entries made of embedding and said [B,T,H]."""
        layer, shape = self.midlayer, (*said.shape[:2], -1, HEAD_DIM)
        part = layer.self_attn
        pair = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(said)], -1)
        q = rotated(part.q_proj(pair).view(shape)).unflatten(2, (KV_HEADS, -1))
        k, v = rotated(part.k_proj(pair).view(shape)), part.v_proj(pair).view(shape)
        h = said + part.o_proj(attend(q, k, v, mask, passes))
        u = layer.post_attention_layernorm(h)
        return h + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(u)) * layer.mlp.up_proj(u))

    def logits(self, stream):
        return self.lm_head(self.norm(stream)).float()


def frequent_tokens(teacher):
    """The VOCABULARY tokens that the corpus' answers have most often, in their order."""
    counts = torch.zeros(teacher.model.shape.vocabulary, dtype=torch.long)
    for index in range(200):
        targets = teacher.packer.batch(index, *SHORT, False, DRILLS)[2]
        counts += torch.bincount(targets[targets >= 0], minlength=len(counts))
    return counts.topk(VOCABULARY).indices.sort().values


def loss_of(head, kept, teacher, step):
    """How far the head is from the demo, and by pass the share of tokens that are the demo's."""
    lesson = teacher.lesson(step)
    embedding, mask = teacher.embedding(lesson.tokens), Places.of(lesson.first).mask
    wanted, right = lesson.logits[:, kept].float().softmax(-1), lesson.logits.argmax(-1)
    losses, shares, passes = [], [], []
    said = head.fc(lesson.read)
    for _ in range(PASSES):
        said = head(embedding, before(said, lesson.first), mask, passes)
        own = head.logits(said[lesson.counted])
        losses.append(F.cross_entropy(own, wanted))
        shares.append((kept[own.argmax(-1)] == right).float().mean().item())
    return mean_loss(losses), shares


def config_of(model):
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "attention_bias": False,
        "draft_vocab_size": VOCABULARY,
        "dtype": "bfloat16",
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": model.shape.hidden,
        "intermediate_size": INNER,
        "max_position_embeddings": 4096,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": model.shape.eps,
        "rope_theta": THETA,
        "tie_word_embeddings": False,
        "vocab_size": model.shape.vocabulary,
    }


def write(folder, head, kept, model):
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config_of(model), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    mask = torch.zeros(model.shape.vocabulary, dtype=torch.bool)
    mask[kept] = True
    weights = {name: value.bfloat16().contiguous() for name, value in head.state_dict().items()}
    tables = {"d2t": kept - torch.arange(len(kept)), "t2d": mask}
    save_file({**weights, **tables}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def main():
    arguments, teacher = begin(__doc__, 5)
    kept = frequent_tokens(teacher)
    head = Head(teacher.model.shape.hidden, teacher.model.shape.eps)
    head.begin_as(teacher.model, kept)
    learn(
        head,
        optimisers_of(head, ["lm_head"]),
        lambda step: loss_of(head, kept, teacher, step),
        lambda: write(arguments.out, head, kept, teacher.model),
        arguments.minutes,
    )


if __name__ == "__main__":
    main()
