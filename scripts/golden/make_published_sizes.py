#!/usr/bin/env python3
"""Write tests/models/published_sizes.json: published checkpoints, their configs and their sizes.

The exact figures are those of the plans of the float64 reference, so they are counted
independently of what they test; where a figure is known from outside, both have to agree. With
--presets the configs named there are written under models/presets as well. Needs numpy only.
"""

import argparse
import math
import os
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

from checkpoints import checkpoint_files, published_configs
from reference import families
from reference.attention import Attention
from reference.delta import Delta
from reference.kimi import Mla
from reference.lightning import Lightning
from reference.s6 import S6
from reference.short_conv import ShortConv
from reference.ssd import Ssd

top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def state_of(part):
    """(elements of the recurrent matrices, elements of the window) of one part."""
    if isinstance(part, Ssd):
        return part.inner * part.states, part.conv_channels * (part.taps - 1)
    if isinstance(part, S6):
        return part.channels * part.states, part.channels * (part.taps - 1)
    if isinstance(part, Delta):
        matrices = part.value_heads * part.key_dim * part.value_dim
        return matrices, part.conv_channels * (part.taps - 1)
    if isinstance(part, Lightning):  # with the window of a convolution that takes one token alone
        return part.inner * part.head_dim, 0 if part.rope_dims else 3 * part.inner
    if isinstance(part, ShortConv):
        return 0, part.hidden * (part.taps - 1)
    return 0, 0


def sizes_of(config):
    plan = families.plan_of(config)
    tensors = list(plan.tensors())
    parts = plan.parts()
    nested = [getattr(part, "attention", part) for part in parts]
    attention = [part for part in nested if isinstance(part, Attention)]
    states = [state_of(part) for part in parts]
    matrices, windows = (sum(column) for column in zip(*states))
    latents = [part for part in parts if isinstance(part, Mla)]
    return {
        "parameters": sum(math.prod(shape) for _, shape, _ in tensors),
        "tensors": len(tensors),
        "layers": len(plan.layers),
        "attention_layers": sum(part.kv_of is None for part in attention) + len(latents),
        "recurrent_layers": sum(any(each) for each in states),
        "kv_bytes_per_token": sum(
            4 * part.kv_heads * part.head_dim
            for part in attention
            if part.kv_of is None and not (part.window or part.chunk)
        )
        + sum(2 * (part.latent + part.turned_dim) for part in latents),
        "state_bytes_f32": 4 * matrices + 2 * windows,
        "state_bytes_bf16": 2 * matrices + 2 * windows,
    }


def disagreements(name, sizes):
    """Where the counts and the figures known from outside differ by more than their last digit."""
    known = published_configs.figures[name]
    if known["billions"] and abs(sizes["parameters"] / 1e9 - known["billions"]) > 0.0051:
        yield f"{name}: {sizes['parameters']} parameters, {known['billions']} B known"
    for kind in ("f32", "bf16"):
        mib = sizes[f"state_bytes_{kind}"] / 2**20
        if abs(mib - known[f"state_mib_{kind}"]) > 0.051:
            yield f"{name}: {mib} MiB of state in {kind}, {known[f'state_mib_{kind}']} known"
    if sizes["kv_bytes_per_token"] != known["kv_bytes"]:
        yield f"{name}: {sizes['kv_bytes_per_token']} KV bytes, {known['kv_bytes']} known"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    out = os.path.join(top, "tests", "models", "published_sizes.json")
    parser.add_argument("--out", default=out, help="file to write")
    parser.add_argument("--presets", nargs="*", default=[], choices=published_configs.configs)
    args = parser.parse_args()
    rows, wrong = [], []
    for name, config in published_configs.configs.items():
        sizes = sizes_of(config)
        wrong += disagreements(name, sizes)
        billions = published_configs.figures[name]["billions"]
        nvfp4 = published_configs.nvfp4.get(name)
        rows.append(
            {"name": name, "known_billions": billions, **sizes, "nvfp4": nvfp4, "config": config}
        )
    if wrong:
        raise SystemExit("\n".join(wrong))
    checkpoint_files.write_json(args.out, rows)
    for name in args.presets:
        folder = os.path.join(published_configs.presets, name)
        os.makedirs(folder, exist_ok=True)
        config = published_configs.configs[name]
        checkpoint_files.write_json(os.path.join(folder, "config.json"), config)


if __name__ == "__main__":
    main()
