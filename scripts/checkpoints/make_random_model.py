#!/usr/bin/env python3
"""Write a complete model folder with random weights for a config.json of any family.

The weights are bf16 and scaled so that activations neither vanish nor explode; the answers are
noise. It is for measuring speed and memory in real shapes without a download. The tokenizer (of
granitemoehybrid only) is a byte-level BPE of the config's vocabulary size, trained on made-up
words. Needs the packages numpy and tokenizers.
"""

import argparse
import os
import pathlib
import shutil
import sys
import time

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import numpy

from checkpoints import checkpoint_files as checkpoint, granite_tokenizer
from reference import families

onsets = """b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p ph pl pr qu r s sc sh sl sp st
str t th tr v w wh y z""".split()
vowels = "a e i o u a e i o ai ea ee ie oo ou oa ue y".split()
codas = ["", "", "", ""] + "n r s t l d m p ck ng nd nt st rd ss rm x ll sh th ft lk".split()
endings = ["", "", "", "", "s", "ed", "ing", "er", "ly", "ness", "tion", "ment", "able", "ous"]
common = """the of and to in is that it was for on are as with his they at be this have from or
one had by word but not what all were we when your can said there use an each which
she do how their if will up other about out many then them these so some her would
make like him into time has look two more write go see number no way could people my
than first water been call who oil its now find long down day did get come made may
part""".split()
marks = [", ", ". ", "; ", ": ", "? ", "! ", " - ", " (", ") ", ' "', '" ', ".\n", "\n\n", " = "]


def pick(rng, parts, count):
    return numpy.array(parts)[rng.integers(0, len(parts), count)]


def make_words(rng, count):
    """count different words, the short ones first, as in a language."""
    words = dict.fromkeys(common)
    while len(words) < count:
        pieces = [pick(rng, parts, count) for parts in (onsets, vowels, codas) * 3]
        syllables = rng.integers(1, 4, count)
        tails = pick(rng, endings, count)
        for i in range(count):
            word = "".join(str(part[i]) for part in pieces[: 3 * syllables[i]]) + str(tails[i])
            words[word if rng.random() < 0.8 else word.capitalize()] = None
    words = list(words)[:count]
    return common + sorted(words[len(common) :], key=len)


def make_texts(seed, size):
    """Lines of made-up prose in which enough different words occur for `size` tokens; word
    number n occurs about 1/n as often as the first, and every one occurs."""
    rng = numpy.random.Generator(numpy.random.PCG64(seed))
    words = make_words(rng, max(200, size + size // 8))
    everything = rng.permutation(len(words))
    ranks = (len(words) ** rng.random(4 * len(words))).astype(int) - 1
    order = numpy.concatenate([everything, ranks])
    for start in range(0, len(order), 16):
        line = []
        for index in order[start : start + 16]:
            line.append(words[index])
            line.append(" " if rng.random() < 0.85 else marks[rng.integers(len(marks))])
        line.append(str(rng.integers(0, 10 ** rng.integers(1, 6))))
        yield "".join(line)


def read_texts(paths):
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file


def check_config(config, path, has_tokenizer):
    kind = config.get("model_type")
    if has_tokenizer and kind != "granitemoehybrid":
        text = f"model_type: a tokenizer can be made for granitemoehybrid only, found {kind!r}"
        raise SystemExit(f"{path}: {text}; use --no-tokenizer")
    layers = families.text_config(config)["num_hidden_layers"]
    if len(families.plan_of(config).layers) != layers:
        raise SystemExit(f"{path}: the list of layers and num_hidden_layers disagree")


def write_configs(out, path, config):
    shutil.copyfile(path, os.path.join(out, "config.json"))
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    generation = {"_from_model_config": True}
    text = families.text_config(config)
    generation.update({key: text[key] for key in keys if text.get(key) is not None})
    checkpoint.write_json(os.path.join(out, "generation_config.json"), generation)


def texts_for(args, config):
    yield from read_texts(args.vocab_text)
    yield from make_texts(args.seed, config["vocab_size"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="config.json, or a folder that holds it")
    parser.add_argument("out", help="folder to write; made if missing")
    parser.add_argument("--seed", type=int, default=1, help="of weights and of the made-up text")
    parser.add_argument("--vocab-text", nargs="*", default=[], help="files to train on as well")
    parser.add_argument("--no-tokenizer", action="store_true", help="weights and configs only")
    args = parser.parse_args()
    path = args.config
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    config = checkpoint.read_json(path)
    check_config(config, path, not args.no_tokenizer)
    os.makedirs(args.out, exist_ok=True)
    write_configs(args.out, path, config)
    start = time.monotonic()
    table = families.plan_of(config).tensors()
    size = checkpoint.write_tensors(args.out, checkpoint.drawn(table, args.seed))
    print(f"{size / 1e9:.2f} GB of weights in {time.monotonic() - start:.1f} s", flush=True)
    if not args.no_tokenizer:
        start = time.monotonic()
        granite_tokenizer.write_files(args.out, texts_for(args, config), config)
        print(f"tokenizer of {config['vocab_size']} in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
