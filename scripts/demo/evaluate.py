#!/usr/bin/env python3
"""Scores the demo model on its held-out prompts, greedily.

  evaluate.py --hyb build/hyb            one `hyb run` per prompt: what a user gets
  evaluate.py --hyb build/hyb --batch    the same prompts through one `hyb batch`
  evaluate.py --torch DIR                with transformers in f32, on the export in DIR

An answer is right when it equals the expected text after both are lower-cased, runs of white space
are one space, and a full stop at the end is dropped. Every task has one canonical wording, so that
is strict. Small talk is shown but does not count; overall is the mean of the scored tasks.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

MAX_TOKENS = 64
UNSCORED = {"small_talk"}
HELD_OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "demo" / "heldout.jsonl"


def normal(text):
    return " ".join(text.lower().split()).removesuffix(".")


def is_right(row, answer):
    return normal(answer) == normal(row["expect"])


def run_answers(rows, hyb, model):
    """One process per prompt."""
    for row in rows:
        command = [
            hyb,
            "run",
            *([model] if model else []),
            "--temperature",
            "0",
            "-n",
            str(MAX_TOKENS),
            "-p",
            row["messages"][0]["content"],
        ]
        yield subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
        ).stdout


def batch_answers(rows, hyb, model):
    """All prompts as one file of OpenAI batch lines."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
        with open(source, "w", encoding="utf-8") as out:
            for row in rows:
                body = {"messages": row["messages"], "temperature": 0, "max_tokens": MAX_TOKENS}
                out.write(
                    json.dumps(
                        {
                            "custom_id": row["id"],
                            "method": "POST",
                            "url": "/v1/chat/completions",
                            "body": body,
                        }
                    )
                    + "\n"
                )
        subprocess.run(
            [hyb, "batch", model or "demo", str(source), "-o", str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        results = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    texts = {
        r["custom_id"]: r["response"]["body"]["choices"][0]["message"]["content"] for r in results
    }
    return [texts[row["id"]] for row in rows]


def torch_answers(rows, folder):
    """transformers in f32 on the exported folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for row in rows:
        ids = tokenizer.apply_chat_template(
            row["messages"], add_generation_prompt=True, return_dict=False
        )
        with torch.no_grad():
            out = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=MAX_TOKENS,
                do_sample=False,
            )
        yield tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True)


def table(rows, answers):
    """Prints right/of per task as a Markdown table; returns the overall share and the failures."""
    counts, failures = {}, []
    for row, answer in zip(rows, answers):
        right, of = counts.get(row["task"], (0, 0))
        counts[row["task"]] = (right + is_right(row, answer), of + 1)
        if not is_right(row, answer):
            failures.append((row, answer))
    print("| task | right | of | % |\n|---|---|---|---|")
    for task, (right, of) in counts.items():
        note = " (unscored)" if task in UNSCORED else ""
        print(f"| {task}{note} | {right} | {of} | {100 * right / of:.1f} |")
    shares = [right / of for task, (right, of) in counts.items() if task not in UNSCORED]
    share = sum(shares) / len(shares) if shares else 0.0
    print(f"| **overall** | | | **{100 * share:.1f}** |")
    return share, failures


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hyb", help="path of the built binary")
    parser.add_argument("--model", help="model folder for hyb (default: the one inside the binary)")
    parser.add_argument(
        "--batch", action="store_true", help="use `hyb batch` instead of `hyb run` per prompt"
    )
    parser.add_argument(
        "--torch", metavar="DIR", help="score this folder with transformers instead"
    )
    parser.add_argument("--held-out", default=HELD_OUT, type=pathlib.Path)
    parser.add_argument("--task", action="append", help="only this task (may be repeated)")
    parser.add_argument("--failures", action="store_true", help="print the wrong answers too")
    parser.add_argument(
        "--at-least", type=float, default=0.0, metavar="PERCENT", help="exit 1 if overall is lower"
    )
    arguments = parser.parse_args()
    if not arguments.hyb and not arguments.torch:
        parser.error("give --hyb BINARY or --torch DIR")
    return arguments


def main():
    arguments = parse_arguments()
    rows = [
        json.loads(line) for line in arguments.held_out.read_text(encoding="utf-8").splitlines()
    ]
    rows = [row for row in rows if not arguments.task or row["task"] in arguments.task]
    started = time.monotonic()
    if arguments.torch:
        answers = list(torch_answers(rows, arguments.torch))
    else:
        source = batch_answers if arguments.batch else run_answers
        answers = list(source(rows, arguments.hyb, arguments.model))
    share, failures = table(rows, answers)
    print(f"{len(rows)} prompts in {time.monotonic() - started:.1f} s", file=sys.stderr)
    if arguments.failures:
        for row, answer in failures:
            print(
                f"{row['id']}: {row['messages'][0]['content'][-160:]!r}\n"
                f"  expected {row['expect']!r}\n"
                f"  got      {answer.strip()!r}"
            )
    return 0 if 100 * share >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
