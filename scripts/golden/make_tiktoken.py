#!/usr/bin/env python3
"""Write tests/core/text/fixtures/tiktoken.*: a small vocabulary in the form of Kimi's
tiktoken.model and what tiktoken makes of strings. Needs tiktoken and tokenizers."""

import argparse
import base64
import json
import os
import pathlib
import random
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import tiktoken

from fuzz.tokenizer_kinds import train
from fuzz.tokenizer_strings import Strings, Words, assigned_points

out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "core", "text")
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
END = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{END}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{END}", r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<think>", 255: "[PAD]"}
# Tokens that can be cut in more than one way, where the leftmost cut counts.
TIES = [b"aa", b"aaa", b"aaaaa", b"ab", b"ba", b"aba", b"abab", b"baba", b"ababa"]


def vocabulary():
    """Tokens in the order of their ranks."""
    rng, words = random.Random(7), Words(7, count=3000)
    built = train("kimi", 300, 7, [words.sentence(rng) for _ in range(3000)])
    spelled = {chr(code): code for code in range(256)}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [code for code in range(256) if code not in printable]
    spelled = {chr(code): code for code in printable}
    spelled.update({chr(256 + i): code for i, code in enumerate(others)})
    pieces = sorted(built["model"]["vocab"], key=built["model"]["vocab"].get)
    known = [bytes(spelled[c] for c in piece) for piece in pieces if set(piece) <= set(spelled)]
    singles = [token for token in known if len(token) == 1]
    longer = [token for token in [*TIES, *known] if len(token) > 1 and token != b"<|endoftext|>"]
    return list(dict.fromkeys([*singles, *longer]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strings", type=int, default=140, help="how many are drawn")
    args = parser.parse_args()
    tokens = vocabulary()
    ranks = {token: rank for rank, token in enumerate(tokens)}
    first = len(tokens)
    special = {NAMED.get(i, f"<|reserved_token_{first + i}|>"): first + i for i in range(256)}
    peer = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    settings = {
        "tokenizer_class": "TikTokenTokenizer",
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "added_tokens_decoder": {
            str(first + i): {"content": name, "special": True} for i, name in NAMED.items()
        },
    }
    strings = Strings(11, Words(7, count=3000), assigned_points()).make(args.strings)
    rng = random.Random(3)
    several = ["", "汉字Kanji漢字です", "don't DON'T 12345 x1y22"]
    several += [f"<|im_user|>hi<|im_end|>[EOS]<|reserved_token_{first + 9}|>"]
    several += ["".join(rng.choice("ab") for _ in range(rng.randrange(2, 90))) for _ in range(60)]
    several += strings
    golden = [{"string": one, "ids": peer.encode(one, allowed_special="all")} for one in several]
    files = {
        "tiktoken.model": "".join(lines),
        "tiktoken.config.json": json.dumps(settings, indent=1) + "\n",
        "tiktoken.golden.jsonl": "".join(
            json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in golden
        ),
    }
    for name, text in files.items():
        with open(os.path.join(out, "fixtures", name), "w", encoding="utf-8", newline="") as file:
            file.write(text)


if __name__ == "__main__":
    main()
