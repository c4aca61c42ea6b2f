#!/usr/bin/env python3
"""Makes tests/golden/real_models.json: what transformers answers with the published models of
scripts/checkpoints/real_models.py, read from the same GGUF files, in f32, greedily.

    scripts/golden/make_real_models.py [NAME...]      # needs torch, transformers and gguf
"""

import argparse
import json
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import torch
import transformers

from checkpoints import real_models

TOKENS = 24
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/real_models.json"
CHATS = [
    "What is gravity?",
    "Write a haiku about the sea.",
    "Count from one to twenty in words.",
    "Translate to French: The weather is nice today.",
    "def fibonacci(n):\n    # explain what this\tfunction does",
    "List three rivers in Europe: Danube, Rhine, ...",
    "Naïve café, 東京, Привет, 🙂: which languages are these?",
    "Give me the JSON object with name 'Ada' and born 1815.",
]
TEXTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "import os\nimport sys\n\ndef main():\n    ",
    "1, 2, 3, 4, 5, 6, 7,",
    "La révolution française a commencé en",
    "東京は日本の",
    "Water boils at 100 °C. Ice melts at",
    "   Indented   text with    runs of spaces\n\n\nand lines:",
]


def answer(model, ids):
    """Greedy tokens with their log-probabilities and the gap to the next best one."""
    tokens, logprobs, gaps = [], [], []
    past, step = None, torch.tensor([ids])
    with torch.no_grad():
        for _ in range(TOKENS):
            out = model(step, past_key_values=past, use_cache=True)
            past = out.past_key_values
            best = torch.log_softmax(out.logits[0, -1].double(), -1).topk(2)
            tokens.append(int(best.indices[0]))
            logprobs.append(round(float(best.values[0]), 6))
            gaps.append(round(float(best.values[0] - best.values[1]), 6))
            if tokens[-1] in (model.generation_config.eos_token_id, model.config.eos_token_id):
                break
            step = torch.tensor([[tokens[-1]]])
    return {"tokens": tokens, "logprobs": logprobs, "gaps": gaps}


def golden(name):
    path = real_models.find(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    is_chat = bool(tokenizer.chat_template)
    cases = []
    for text in CHATS if is_chat else TEXTS:
        if is_chat:
            shown = tokenizer.apply_chat_template([{"role": "user", "content": text}],
                                                  tokenize=False, add_generation_prompt=True)
            ids = tokenizer(shown, add_special_tokens=False)["input_ids"]
        else:
            ids = tokenizer(text)["input_ids"]
        cases.append({"chat" if is_chat else "text": text, "prompt": ids, **answer(model, ids)})
        print(name, json.dumps(text), len(ids), repr(tokenizer.decode(cases[-1]["tokens"])))
    return {"sha256": real_models.MODELS[name].sha256, "cases": cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(real_models.MODELS))
    names = parser.parse_args().names
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for name in names or real_models.MODELS:
        known[name] = golden(name)
    lines = [f' {json.dumps(name)}: {{"sha256": "{one["sha256"]}", "cases": [\n  '
             + ",\n  ".join(json.dumps(case) for case in one["cases"]) + "]}"
             for name, one in known.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
