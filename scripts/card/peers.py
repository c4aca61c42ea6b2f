#!/usr/bin/env python3
"""Times what else runs on this card: torch's products and copies, and transformers in the shape of
a preset with random weights. Every case is by itself, so that one that fails ends no other. One
JSON object per line; says what is not here. For day.py.
"""

import gc
import importlib.util
import json
import pathlib
import sys
import time

PRESET = pathlib.Path("models/presets/granite-4.0-h-tiny")


def say(**facts):
    print(json.dumps(facts), flush=True)


def timed(torch, action, rounds):
    """Seconds of the fastest of some rounds, after one that does not count."""
    action()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        action()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def case(torch, measure, **facts):
    try:
        with torch.inference_mode():
            say(**facts, **measure())
    except Exception as error:  # above all: out of memory
        say(**facts, error=str(error)[:200])
    gc.collect()
    torch.cuda.empty_cache()


def ceilings(torch):
    size = 8192

    def matmul():
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        return {"flops_per_s": 2 * size**3 / timed(torch, lambda: a @ b, 10)}

    def copy():
        read = torch.empty(1 << 31, device="cuda", dtype=torch.uint8)
        written = torch.empty_like(read)
        return {"bytes_per_s": 2 * read.numel() / timed(torch, lambda: written.copy_(read), 5)}

    case(torch, matmul, peer="torch", what="matmul", size=size)
    case(torch, copy, peer="torch", what="copy, read and written")


def transformers_cases(torch, transformers):
    """Prompts and batches are short: without mamba_ssm its scan of a prompt takes memory that grows
    with batch x length x chunk (51 GB for one prompt of 8192)."""
    config = transformers.AutoConfig.from_pretrained(PRESET)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    facts = {"peer": "transformers", "model": PRESET.name}

    def ids(batch, tokens):
        return torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")

    def prefill(tokens):
        prompt = ids(1, tokens)
        seconds = timed(torch, lambda: model(prompt, logits_to_keep=1), 2)
        return {"tokens_per_s": tokens / seconds}

    def decode(batch, answer=16):
        prompts = ids(batch, 128)
        both, first = (timed(torch, lambda: model.generate(
            prompts, max_new_tokens=count, min_new_tokens=count, do_sample=False), 1)
            for count in (answer + 1, 1))
        return {"tokens_per_s": batch * answer / (both - first)}

    for tokens in (512, 2048):
        case(torch, lambda: prefill(tokens), **facts, what="prefill", tokens=tokens)
    for batch in (1, 8):
        case(torch, lambda: decode(batch), **facts, what="decode", batch=batch, context=128)


def main():
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        say(peer="transformers", text=f"not here: {', '.join(missing)}")
        return 0
    import torch
    if not torch.cuda.is_available():
        say(peer="torch", text="torch sees no card")
        return 0
    ceilings(torch)
    import transformers
    kernels = [name for name in ("mamba_ssm", "causal_conv1d", "fla")
               if importlib.util.find_spec(name) is not None]
    say(peer="transformers", torch=torch.__version__, transformers=transformers.__version__,
        kernels=kernels)
    case(torch, lambda: transformers_cases(torch, transformers) or {}, peer="transformers",
         what="all cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
