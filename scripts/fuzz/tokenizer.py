"""Compares hyb's tokenizer with Hugging Face `tokenizers` on fuzzed strings.

Trains byte-pair vocabularies on a synthetic multilingual text for every kind of tokenizer.json in
use, encodes fuzzed strings with both, compares ids, decoded text and streamed text, and appends one
JSON line of counts per run to the results.

    python scripts/fuzz/tokenizer.py run --tool BUILD/hyb_tokenize_lines --work DIR \\
        --results tests/core/text/fuzz_results.jsonl --strings 100000 --seeds 1 2
    python scripts/fuzz/tokenizer.py points --tool ... --work DIR --results ...
    python scripts/fuzz/tokenizer.py fixtures --out tests/core/text/fixtures

`points` sends every code point of Unicode through the kinds that depend on Unicode tables: those
assigned in Unicode 13 have to agree, the later ones that differ are listed.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import unicodedata

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers
from tokenizers import Tokenizer

from fuzz.tokenizer_kinds import KINDS, train
from fuzz.tokenizer_strings import Strings, Words, assigned_points


def run_tool(tool, path, strings):
    """The tool's answers, one a string."""
    lines = "".join(json.dumps(s) + "\n" for s in strings)
    done = subprocess.run([tool, path], input=lines, capture_output=True, text=True,
                          encoding="utf-8")
    if done.returncode:
        sys.exit(f"{tool} {path}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def encode_all(reference, strings):
    """The ids of every string; None where the reference panics, which it does on some."""
    try:
        return [e.ids for e in reference.encode_batch(strings, add_special_tokens=False)]
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
    if len(strings) == 1:
        return [None]
    half = len(strings) // 2
    return encode_all(reference, strings[:half]) + encode_all(reference, strings[half:])


def compare(tool, path, strings):
    """Counts of what differs, and a few examples."""
    reference = Tokenizer.from_file(path)
    counts = {"ids": 0, "text": 0, "plain": 0, "stream": 0, "errors": 0,
              "reference crashes": 0}
    examples = []
    differing = []
    for begin in range(0, len(strings), 20000):
        part = strings[begin:begin + 20000]
        answers = run_tool(tool, path, part)
        assert len(answers) == len(part)
        ids = encode_all(reference, part)
        crashes = [i for i, want in enumerate(ids) if want is None]
        counts["reference crashes"] += len(crashes)
        for i in reversed(crashes):
            del part[i], answers[i], ids[i]
        texts = reference.decode_batch(ids, skip_special_tokens=False)
        plains = reference.decode_batch(ids, skip_special_tokens=True)
        for s, answer, want, full, plain in zip(part, answers, ids, texts, plains):
            wrong = []
            if "error" in answer:
                wrong.append("errors")
            else:
                wrong += ["ids"] if answer["ids"] != want else []
                wrong += ["text"] if answer["text"] != full else []
                wrong += ["plain"] if answer["plain"] != plain else []
                # A run of byte tokens that is no character is streamed otherwise, on purpose.
                good_bytes = "\ufffd" not in plain
                wrong += ["stream"] if good_bytes and answer["stream"] != answer["plain"] else []
            for name in wrong:
                counts[name] += 1
            if wrong:
                differing.append(s)
                if len(examples) < 5:
                    examples.append({"string": s, "wrong": wrong, "want": want, "got": answer})
    return counts, examples, differing


def versions():
    return {"tokenizers": tokenizers.__version__, "unicode": "13.0"}


def tokenizer_file(work, kind, merges, seed):
    path = os.path.join(work, f"{kind}-{merges}-{seed}.json")
    if not os.path.exists(path):
        rng = random.Random(seed)
        words = Words(seed)
        corpus = [words.sentence(rng) for _ in range(40000 if merges <= 1000 else 250000)]
        built = train(kind, merges, seed, corpus)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(built, file, ensure_ascii=seed % 2 == 0)
        os.rename(path + ".new", path)
    return path


def run(args):
    points = assigned_points()
    for seed in args.seeds:
        words = Words(seed)
        for merges in args.merges:
            for kind in args.kinds or KINDS:
                path = tokenizer_file(args.work, kind, merges, seed)
                with open(path, encoding="utf-8") as file:
                    trained = len(json.load(file)["model"]["merges"])
                begin = time.time()
                strings = Strings(f"{kind} {merges} {seed}", words, points).make(args.strings)
                counts, examples, _ = compare(args.tool, path, strings)
                line = {"kind": kind, "merges": trained, "seed": seed, "strings": len(strings),
                        "differ": counts, **versions()}
                print(json.dumps(line), f"{time.time() - begin:.0f} s", flush=True)
                for example in examples:
                    print("   ", json.dumps(example, ensure_ascii=True), flush=True)
                with open(args.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def ranges(points):
    out = []
    for point in sorted(points):
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in out]


def every_point(args):
    assigned = set(assigned_points())
    for kind in args.kinds or KINDS:
        path = tokenizer_file(args.work, kind, 1000, 1)
        points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
        strings = [f"a{chr(c)}b 1{chr(c)} {chr(c)}A{chr(c)}\u0301" for c in points]
        counts, examples, differing = compare(args.tool, path, strings)
        wrong = {ord(s[1]) for s in differing}
        later = wrong - assigned
        line = {"kind": kind, "points": len(points), "assigned in Unicode 13": len(assigned),
                "differ": len(wrong & assigned), "differ, not in Unicode 13": len(later),
                "they are": ranges(later), **versions()}
        print(json.dumps(line), flush=True)
        for point in sorted(wrong & assigned)[:20]:
            print("   ", f"{point:X}", unicodedata.name(chr(point), "?"), flush=True)
        with open(args.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def fixtures(args):
    """Small tokenizers with what Hugging Face makes of a few hundred strings each."""
    points = assigned_points()
    words = Words(7, count=3000)
    rng = random.Random(7)
    corpus = [words.sentence(rng) for _ in range(3000)]
    os.makedirs(args.out, exist_ok=True)
    for kind in KINDS:
        built = train(kind, 300 if kind not in ("llama3", "spm") else 1000, 7, corpus)
        path = os.path.join(args.out, f"{kind}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(built, file, ensure_ascii=False, separators=(",", ":"))
        reference = Tokenizer.from_file(path)
        strings = [s for s in Strings(f"fixture {kind}", words, points).make(240) if len(s) < 70]
        with open(os.path.join(args.out, f"{kind}.golden.jsonl"), "w", encoding="utf-8") as file:
            for s in strings:
                ids = reference.encode(s, add_special_tokens=False).ids
                text = reference.decode(ids, skip_special_tokens=False)
                plain = reference.decode(ids, skip_special_tokens=True)
                line = {"string": s, "ids": ids}
                if text != s:
                    line["text"] = text  # left out: as the string
                if plain != text:
                    line["plain"] = plain  # left out: as the text
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "points"):
        command = commands.add_parser(name)
        command.add_argument("--tool", required=True)
        command.add_argument("--work", required=True, help="where trained tokenizers are kept")
        command.add_argument("--results", required=True)
        command.add_argument("--kinds", nargs="*", choices=list(KINDS))
        if name == "run":
            command.add_argument("--strings", type=int, default=100000)
            command.add_argument("--merges", type=int, nargs="*", default=[1000, 32000])
            command.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    commands.add_parser("fixtures").add_argument("--out", required=True)
    args = parser.parse_args()
    {"run": run, "points": every_point, "fixtures": fixtures}[args.command](args)


if __name__ == "__main__":
    main()
