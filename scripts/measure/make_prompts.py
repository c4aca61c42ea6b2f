#!/usr/bin/env python3
"""Writes prompts for `hyb batch` that begin alike, the same ones for the same seed.

    scripts/measure/make_prompts.py > prompts.jsonl
    hyb batch prompts.jsonl -o answers.jsonl -n 16

Each story begins several documents, with several questions about each document: a line is
story, document, question. The lines are shuffled. All of it is the demo model's world.
"""

import argparse
import json
import pathlib
import random
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from demo import corpus


def text_of(facts):
    return " ".join(sentence for sentence, _, _ in facts)


def question_of(rng, facts):
    _, known, which = rng.choice([fact for fact in facts if fact[1] is not None])
    return known.ask(rng, which)[0]


def prompts(rng, arguments):
    for _ in range(arguments.stories):
        story = corpus.long_facts(rng, arguments.story_words)
        for _ in range(arguments.documents):
            facts = story + corpus.long_facts(rng, arguments.document_words)
            for _ in range(arguments.questions):
                yield text_of(facts) + " " + question_of(rng, facts)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stories", type=int, default=24)
    parser.add_argument("--documents", type=int, default=3, help="that begin with each story")
    parser.add_argument("--questions", type=int, default=5, help="about each document")
    parser.add_argument("--story-words", type=int, default=450)
    parser.add_argument("--document-words", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    lines = list(prompts(rng, arguments))
    rng.shuffle(lines)
    sys.stdout.writelines(json.dumps({"prompt": line}) + "\n" for line in lines)


if __name__ == "__main__":
    main()
