#!/usr/bin/env python3
"""Compares folders that `hyb quantize` wrote with what transformers makes of them, in f32.

    scripts/check/quantized.py build/hyb FOLDER...   # needs torch, transformers, compressed-tensors

Both go on greedily from a few texts; at each step the log-probabilities of the tokens that hyb
finds likeliest are compared, which are logits but for one number for all. Not part of the tests.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import torch
import transformers

TEXTS = ["The harbour town wakes before the sun does. Fishermen carry",
         "def merge_sorted(left, right):\n    merged = []\n",
         "What is 12 plus 30?",
         "The red box holds a coin. The bag holds a key. What does the red box hold?"]
STEPS, SHOWN, CLOSE = 16, 20, 1e-3


def answers(hyb, folder):
    """Tokens of hyb's answers, and (id, log-probability) of the likeliest at each step."""
    with tempfile.TemporaryDirectory() as scratch:
        asked, out = pathlib.Path(scratch) / "in.jsonl", pathlib.Path(scratch) / "out.jsonl"
        asked.write_text("".join(json.dumps({
            "custom_id": str(i), "method": "POST", "url": "/v1/completions",
            "body": {"prompt": text, "max_tokens": STEPS, "temperature": 0, "ignore_eos": True,
                     "logprobs": SHOWN}}) + "\n" for i, text in enumerate(TEXTS)))
        subprocess.run([hyb, "batch", folder, asked, "-o", out, "--dtype", "f32"], check=True)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = {}
    for line in lines:
        content = line["response"]["body"]["choices"][0]["logprobs"]["content"]
        found[int(line["custom_id"])] = [
            (one["id"], [(top["id"], top["logprob"]) for top in one["top_logprobs"]])
            for one in content]
    return [found[i] for i in range(len(TEXTS))]


def main():
    hyb, failed = sys.argv[1], False
    # The weights of NVFP4 come as bf16, which holds them exactly.
    torch.nn.Linear.forward = lambda own, x: torch.nn.functional.linear(
        x, own.weight.float(), own.bias)
    for folder in sys.argv[2:]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model.eval()
        worst, compared = 0.0, 0
        for text, steps in zip(TEXTS, answers(hyb, folder)):
            prompt = tokenizer(text)["input_ids"]
            tokens = prompt + [token for token, _ in steps]
            with torch.no_grad():
                logits = model(torch.tensor([tokens])).logits[0].double()
            for i, (_, likeliest) in enumerate(steps):
                expected = torch.log_softmax(logits[len(prompt) + i - 1], -1)
                for token, logprob in likeliest:
                    worst = max(worst, abs(float(expected[token]) - logprob))
                    compared += 1
        failed |= worst > CLOSE
        print(f"{folder}: {compared} log-probabilities, at most {worst:.2g} off, "
              f"{'wrong' if worst > CLOSE else 'right'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
