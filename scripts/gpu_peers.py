#!/usr/bin/env python3
"""Times what else can run a hybrid model on this card: transformers with torch, in the shapes of
the presets with random weights. One JSON object per line; says what is not here. For gpu_check.py.
"""

import importlib.util
import json
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
PRESETS = ("granite-4.0-h-tiny", "granite-4.0-h-micro")


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


def measure(torch, transformers, preset):
    config = transformers.AutoConfig.from_pretrained(TOP / "models" / "presets" / preset)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    for tokens in (512, 8192):
        ids = torch.randint(0, config.vocab_size, (1, tokens), device="cuda")
        seconds = timed(torch, lambda: model(ids, logits_to_keep=1), 3)
        say(peer="transformers", model=preset, what="prefill", tokens=tokens,
            tokens_per_s=tokens / seconds)
    for batch in (1, 64):
        ids = torch.randint(0, config.vocab_size, (batch, 1024), device="cuda")
        answer = 32

        def generate(tokens):
            return model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens,
                                  do_sample=False)

        both = timed(torch, lambda: generate(answer), 1)
        first = timed(torch, lambda: generate(1), 1)
        say(peer="transformers", model=preset, what="decode", batch=batch, context=1024,
            tokens_per_s=batch * (answer - 1) / (both - first))


def main():
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        say(peer="transformers", text=f"not here: {', '.join(missing)}")
        return 0
    import torch
    import transformers
    if not torch.cuda.is_available():
        say(peer="transformers", text="torch sees no card")
        return 0
    kernels = [name for name in ("mamba_ssm", "causal_conv1d", "fla")
               if importlib.util.find_spec(name) is not None]
    say(peer="transformers", torch=torch.__version__, transformers=transformers.__version__,
        kernels=kernels)
    with torch.inference_mode():
        for preset in PRESETS:
            measure(torch, transformers, preset)
    return 0


if __name__ == "__main__":
    sys.exit(main())
