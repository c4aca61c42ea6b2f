#!/usr/bin/env python3
"""Generates the chats that the demo model learns from, and the held-out prompts that score it.

A chat is a list of {"role", "content"} in a closed world: boxes that hold things, people and
places, small arithmetic, copying, sorting, counting, comparing, small talk. Every question has one
canonical answer, so an answer is right when it equals that text. Everything follows from a seed.
"""

import argparse
import json
import pathlib
import random
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from demo import phrases as say, talk
from demo.drills import drill
from demo.tasks import (
    SIMPLE,
    BoxFacts,
    PersonFacts,
    add,
    far_question,
    fill,
    filler,
    small_talk,
)

SCORED = [
    "recall_box",
    "recall_person",
    "recall_long",
    "add",
    "subtract",
    "copy",
    "sort",
    "count",
    "compare",
]
SHARES = {  # what lags gets more
    "recall_box": 30,
    "recall_person": 12,
    "add": 10,
    "subtract": 7,
    "copy": 8,
    "sort": 14,
    "count": 11,
    "compare": 7,
    "small_talk": 3,
    "unknown": 3,
}
HELD_OUT_SEED = 20260
HELD_OUT_ROWS = 500
HELD_OUT_PER_TASK = 52  # of each scored task; the rest is small talk
LONG_WORDS = 330  # words and full stops between a fact and its question: over 300 tokens


def turns(*pairs):
    """(user, assistant) texts -> messages."""
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in pairs for role, text in zip(roles, pair)]


def join(rng, sentences):
    """Facts as one text; now and then two are joined by "and"."""
    text = " ".join(sentences)
    if (
        len(sentences) > 1
        and sentences[1].startswith(("The ", "There ", "In "))
        and rng.random() < 0.2
    ):
        text = text.replace(". ", " and ", 1).replace(
            " and " + sentences[1][0], " and " + sentences[1][0].lower(), 1
        )
    return text


def tell_and_ask(rng, facts, questions):
    """A chat that states facts and then asks for them, `questions` times."""
    sentences = facts.sentences(rng)
    if rng.random() < 0.3:
        sentences.insert(rng.randrange(len(sentences) + 1), filler(rng))
    asked = [facts.ask(rng, rng.randrange(len(facts.sentences(rng)))) for _ in range(questions)]
    if rng.random() < 0.1:
        asked[-1] = facts.ask_absent(rng)
    if rng.random() < 0.45:
        return turns((join(rng, sentences) + " " + asked[0][0], asked[0][1]), *asked[1:])
    cut = rng.randrange(len(sentences)) if rng.random() < 0.4 else 0
    told = [part for part in (sentences[:cut], sentences[cut:]) if part]
    middle = [small_talk(rng)] if rng.random() < 0.15 else []
    return turns(*[(join(rng, part), say.ACKNOWLEDGE) for part in told], *middle, *asked)


def plain_boxes(rng):
    """Statements and questions about boxes in the plainest words; the easiest to learn."""
    facts = BoxFacts(rng, rng.choice([2, 2, 2, 3, 3, 4]))
    told = " ".join(facts.sentences(rng, say.BOX_PLAIN))
    order = rng.sample(range(len(facts.pairs)), len(facts.pairs))
    asked = [facts.ask_plainly(rng, which) for which in order]
    if rng.random() < 0.6:
        return turns((told + " " + asked[0][0], asked[0][1]), *asked[1:])
    return turns((told, say.ACKNOWLEDGE), *asked)


def long_facts(rng, words):
    """Facts of both kinds and fillers, at least `words` long: (sentence, facts or None, index)."""
    boxes, people = BoxFacts(rng, rng.randrange(6, 22)), PersonFacts(rng, rng.randrange(6, 18))
    tagged = [(s, boxes, i) for i, s in enumerate(boxes.sentences(rng))]
    tagged += [(s, people, i) for i, s in enumerate(people.sentences(rng))]
    rng.shuffle(tagged)
    length, used = 0, []
    while length < words:
        entry = tagged.pop() if tagged and rng.random() < 0.7 else (filler(rng), None, 0)
        used.append(entry)
        length += len(entry[0].split()) + 1
    return used


def long_recall(rng, words, questions):
    """One long text and questions about it, or the same spread over several turns."""
    used = long_facts(rng, words)
    known = [entry for entry in used if entry[1] is not None]
    asked = [entry[1].ask(rng, entry[2]) for entry in (rng.choice(known) for _ in range(questions))]
    texts = [entry[0] for entry in used]
    if rng.random() < 0.7:
        return turns((" ".join(texts) + " " + asked[0][0], asked[0][1]), *asked[1:])
    cuts = sorted(rng.sample(range(1, len(texts)), 3))
    parts = [texts[a:b] for a, b in zip([0, *cuts], [*cuts, len(texts)])]
    return turns(*[(" ".join(part), say.ACKNOWLEDGE) for part in parts], *asked)


def name_chat(rng):
    name = rng.choice(say.PEOPLE)
    middle = [small_talk(rng) if rng.random() < 0.5 else add(rng) for _ in range(rng.randrange(3))]
    if rng.random() < 0.2:
        return turns(*middle, (rng.choice(say.NAME_ASKS), "I do not know your name."))
    tell = fill(rng, say.NAME_FACTS, name=name)
    return turns(
        (tell, f"Nice to meet you, {name}."),
        *middle,
        (rng.choice(say.NAME_ASKS), f"Your name is {name}."),
    )


def polite(rng, messages):
    """Some user turns as people type: in lower case, without the last mark, with a greeting."""
    kind = rng.random()
    for message in messages:
        if message["role"] == "user" and kind < 0.16:
            text = message["content"]
            text = text.lower() if kind < 0.08 else text.rstrip("?.!")
            message["content"] = (
                rng.choice(["Hello! ", "Hi! ", "Please: ", "Hi, "]) + text if kind > 0.13 else text
            )
    return messages


def chat(rng, shares):
    """One training chat of a task drawn by its share."""
    task = rng.choices(list(shares), list(shares.values()))[0]
    if task in SIMPLE:
        messages = turns(*[SIMPLE[task](rng) for _ in range(rng.choice([1, 1, 2, 3]))])
        return messages if task == "copy" else polite(rng, messages)
    if task == "small_talk":
        return (
            name_chat(rng)
            if rng.random() < 0.2
            else turns(*[small_talk(rng) for _ in range(rng.choice([1, 1, 2, 3]))])
        )
    if task == "unknown":
        facts = (BoxFacts if rng.random() < 0.5 else PersonFacts)(rng, rng.randrange(1, 4))
        return turns(
            (join(rng, facts.sentences(rng)) + " " + (asked := facts.ask_absent(rng))[0], asked[1])
        )
    if task == "recall_box" and rng.random() < 0.4:
        return plain_boxes(rng)
    facts = (BoxFacts if task == "recall_box" else PersonFacts)(
        rng, rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6])
    )
    return polite(rng, tell_and_ask(rng, facts, rng.choice([1, 3, 4, 5])))


def mixed_chat(rng):
    """A chat of several tasks: facts first, other turns, questions about the facts."""
    facts = BoxFacts(rng, 3) if rng.random() < 0.5 else PersonFacts(rng, 3)
    between = [
        small_talk(rng) if rng.random() < 0.3 else rng.choice(list(SIMPLE.values()))(rng)
        for _ in range(rng.randrange(1, 7))
    ]
    told = [(join(rng, facts.sentences(rng)), say.ACKNOWLEDGE)]
    return turns(*told, *between, *[facts.ask(rng, rng.randrange(3)) for _ in range(3)])


class Corpus:
    """Training chats that contain no held-out prompt as a user turn."""

    def __init__(self, shares=None):
        self.shares = shares or SHARES
        self.excluded = {row["messages"][0]["content"].lower() for row in held_out()}

    def draw(self, rng, make):
        while True:
            messages = make(rng)
            if not any(
                m["content"].lower() in self.excluded for m in messages if m["role"] == "user"
            ):
                return messages

    def short(self, rng, drills=0.0):
        if rng.random() < drills:
            return self.draw(rng, drill)
        make = mixed_chat if rng.random() < 0.03 else lambda r: chat(r, self.shares)
        return self.draw(rng, make)

    def long(self, rng):
        if rng.random() < 0.1:
            return self.draw(rng, mixed_chat)
        words = rng.randrange(180, 390)
        return self.draw(rng, lambda r: long_recall(r, words, max(3, (470 - words) // 25)))


def held_out_prompt(rng, task):
    """(prompt, answer): one user turn."""
    if task in SIMPLE:
        return SIMPLE[task](rng)
    if task == "small_talk":
        prompt = far_question(rng)  # the fixed phrases are few: all of them stay in training
        return (
            (prompt, say.ONLY_KNOW)
            if prompt not in talk.FAR_PHRASES
            else held_out_prompt(rng, task)
        )
    if task == "recall_long":
        used = long_facts(rng, LONG_WORDS + 20)
        known = [entry for entry in used[:4] if entry[1] is not None]
        if not known:
            return held_out_prompt(rng, task)
        entry = rng.choice(known)
        tail = " ".join(e[0] for e in used[used.index(entry) + 1 :])
        if len(tail.split()) + tail.count(".") < LONG_WORDS - 10:
            return held_out_prompt(rng, task)
        question, answer = entry[1].ask(rng, entry[2])
        return " ".join(e[0] for e in used) + " " + question, answer
    facts = (BoxFacts if task == "recall_box" else PersonFacts)(rng, rng.randrange(1, 7))
    question, answer = facts.ask(rng, rng.randrange(len(facts.sentences(rng))))
    return join(rng, facts.sentences(rng)) + " " + question, answer


def held_out():
    """The 500 held-out rows, always the same ones, no prompt twice."""
    rng, rows, seen = random.Random(HELD_OUT_SEED), [], set()
    for task in SCORED + ["small_talk"]:
        wanted = (
            HELD_OUT_PER_TASK if task in SCORED else HELD_OUT_ROWS - HELD_OUT_PER_TASK * len(SCORED)
        )
        made = 0
        while made < wanted:
            prompt, answer = held_out_prompt(rng, task)
            if prompt.lower() in seen:
                continue
            seen.add(prompt.lower())
            made += 1
            rows.append(
                {
                    "id": f"{task}-{made:02}",
                    "task": task,
                    "messages": [{"role": "user", "content": prompt}],
                    "expect": answer,
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--held-out", metavar="FILE", help="write the held-out prompts as JSON lines"
    )
    parser.add_argument(
        "--chats", type=int, default=0, metavar="N", help="print N training chats as JSON lines"
    )
    parser.add_argument(
        "--long", action="store_true", help="print long chats instead of short ones"
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="print what the chats say and nothing else: a corpus for hyb bench",
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.chats == 0 and (arguments.text or arguments.long or not arguments.held_out):
        parser.error("--chats N or --held-out FILE says what to print; --text and --long need "
                     "--chats")
    if arguments.held_out:
        with open(arguments.held_out, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in held_out())
    corpus, rng = Corpus(), random.Random(arguments.seed)
    for _ in range(arguments.chats):
        messages = corpus.long(rng) if arguments.long else corpus.short(rng)
        if arguments.text:
            sys.stdout.writelines(message["content"] + "\n" for message in messages)
        else:
            sys.stdout.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main()
