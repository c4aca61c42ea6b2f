"""How draft layers of the demo are trained: in passes, each of which goes one guess further.

An entry at position t is made of token t and of what was said of position t - 1. In the first pass
the model said it, in each further one the draft layer itself in the pass before, so that it learns
from its own words as it will be run. A query of pass n sees the keys of the first pass but for the
last n - 1 positions, whose keys are those of the passes since then.
"""

import torch
import torch.nn.functional as F

PASSES = 3
FADING = 0.8  # weight of a pass' loss over the one before


def before(said, first):
    """Row t is row t - 1 of said [B,T,H]; zeros for the first token of each chat."""
    return F.pad(said, (0, 0, 1, 0))[:, :-1].masked_fill(first.unsqueeze(-1), 0.0)


def later(x, by):
    """Row t of x [B,T,...] is row t - by; zeros in front."""
    return F.pad(x.flatten(2), (0, 0, by, 0))[:, : x.shape[1]].view_as(x) if by else x


def attend(q, k, v, mask, passes):
    """Attention of one more pass.

    q [B,T,g,q,D], g key heads with q queries each; k and v [B,T,g,D]; mask [B,T,T] is added to the
    scores: causal, within a chat. passes: (k, v) of the passes before; this one's is added. Returns
    [B,T,g*q*D].
    """
    passes.append((k, v))
    own, scale = len(passes) - 1, q.shape[-1] ** -0.5
    far = torch.ones(mask.shape[1:], dtype=torch.bool).tril(-own)
    scores = torch.einsum("btgqd,bsgd->bgqts", q, passes[0][0]) * scale + mask[:, None, None]
    scores = [scores.masked_fill(~far, float("-inf"))]
    for number in range(1, own + 1):
        back = own - number
        one = torch.einsum("btgqd,btgd->bgqt", q, later(passes[number][0], back)) * scale
        allowed = F.pad(mask.diagonal(-back, 1, 2), (back, 0), value=float("-inf"))
        scores.append((one + allowed[:, None, None]).unsqueeze(-1))
    weights = torch.cat(scores, -1).float().softmax(-1).to(v.dtype)
    length = k.shape[1]
    mixed = torch.einsum("bgqts,bsgd->btgqd", weights[..., :length], passes[0][1])
    for number in range(1, own + 1):
        value = later(passes[number][1], own - number)
        share = weights[..., length + number - 1]
        mixed = mixed + torch.einsum("bgqt,btgd->btgqd", share, value)
    return mixed.flatten(2)


def mean_loss(losses):
    """Of the passes' losses, in their order."""
    weights = [FADING**number for number in range(len(losses))]
    return sum(weight * loss for weight, loss in zip(weights, losses)) / sum(weights)
