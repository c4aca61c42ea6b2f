#!/usr/bin/env python3
"""Generates the chats that the demo model learns from, and the held-out prompts that score it.

A chat is a list of {"role", "content"} in a closed world: boxes that hold things, people and places,
small arithmetic, copying, sorting, counting, comparing, small talk. Every question has one canonical
answer, so an answer is right when it equals that text. Everything follows from a seed.
"""

import argparse
import json
import random
import sys

import demo_phrases as say
import demo_talk as talk

SCORED = ["recall_box", "recall_person", "recall_long", "add", "subtract", "copy", "sort", "count", "compare"]
SHARES = {
    "recall_box": 15, "recall_person": 15, "add": 15, "subtract": 15, "copy": 6, "sort": 10, "count": 10,
    "compare": 6, "small_talk": 6, "unknown": 4,
}
HELD_OUT_SEED = 20260
HELD_OUT_ROWS = 500
HELD_OUT_PER_TASK = 52  # of each scored task; the rest is small talk
LONG_WORDS = 330  # words and full stops between the asked fact and the question: over 300 tokens


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def upper_first(text):
    return text[0].upper() + text[1:]


def fill(rng, phrases, **values):
    return rng.choice(phrases).format(**values)


class BoxFacts:
    """Distinct coloured containers, each holding a distinct thing."""

    def __init__(self, rng, count):
        boxes = rng.sample([f"{c} {b}" for c in say.COLOURS for b in say.CONTAINERS], count + 2)
        items = rng.sample(say.ITEMS, min(count, len(say.ITEMS) - 2) + 2)
        self.absent = (boxes.pop(), items.pop())
        self.pairs = list(zip(boxes, items))

    def sentences(self, rng):
        return [fill(rng, say.BOX_FACTS, **self.names(box, item)) for box, item in self.pairs]

    @staticmethod
    def names(box, item):
        return {"box": box, "item": item, "an_item": an(item), "An_item": upper_first(an(item))}

    def ask(self, rng, which):
        """Question and answer about pair `which`."""
        box, item = self.pairs[which]
        kind = rng.random()
        if kind < 0.45:
            return fill(rng, say.BOX_WHAT, box=box), f"The {box} holds {an(item)}."
        if kind < 0.88:
            return fill(rng, say.BOX_WHERE, item=item), f"The {item} is in the {box}."
        other = box if rng.random() < 0.5 else rng.choice(self.pairs)[0]
        answer = "Yes" if other == box else "No"
        return fill(rng, say.BOX_CHECK, **self.names(other, item)), f"{answer}, the {item} is in the {box}."

    def ask_absent(self, rng):
        box, item = self.absent
        if rng.random() < 0.5:
            return fill(rng, say.BOX_WHAT, box=box), f"I do not know what is in the {box}."
        return fill(rng, say.BOX_WHERE, item=item), f"I do not know where the {item} is."


class PersonFacts:
    """Distinct people, each with one or more of place, job, liking and age; no place is shared."""

    def __init__(self, rng, count):
        people = rng.sample(say.PEOPLE, min(count, len(say.PEOPLE) - 1) + 1)
        places = rng.sample(say.PLACES, len(say.PLACES))
        self.absent = people.pop()
        keys = [(name, kind) for name in people for kind in say.PERSON_FACTS]
        keys = [key for key in keys if key[1] != "place" or people.index(key[0]) < len(places)]
        self.facts = []
        for name, kind in rng.sample(keys, count):
            value = {"place": lambda: places.pop(), "job": lambda: rng.choice(say.JOBS),
                     "likes": lambda: rng.choice(say.LIKES), "age": lambda: str(rng.randrange(1, 100))}[kind]()
            self.facts.append((name, kind, value))

    def sentences(self, rng):
        return [fill(rng, say.PERSON_FACTS[kind], name=name, value=value) for name, kind, value in self.facts]

    def ask(self, rng, which):
        name, kind, value = self.facts[which]
        answer = say.PERSON_ANSWERS[kind].format(name=name, value=value)
        if kind == "place" and rng.random() < 0.4:
            return fill(rng, say.WHO_ASKS, value=value), answer
        return fill(rng, say.PERSON_ASKS[kind], name=name), answer

    def ask_absent(self, rng):
        kind = rng.choice(list(say.PERSON_ASKS))
        return fill(rng, say.PERSON_ASKS[kind], name=self.absent), say.PERSON_UNKNOWN[kind].format(name=self.absent)


def filler(rng):
    return fill(rng, say.FILLERS, colour=rng.choice(say.COLOURS), place=rng.choice(say.PLACES))


def number(rng):
    return rng.randrange(100) if rng.random() < 0.9 else rng.randrange(10)


def add(rng):
    a, b = number(rng), number(rng)
    return fill(rng, say.ADD, a=a, b=b), f"{a} plus {b} is {a + b}."


def subtract(rng):
    a, b = sorted((number(rng), number(rng)), reverse=True)
    return fill(rng, say.SUBTRACT, a=a, b=b), f"{a} minus {b} is {a - b}."


def copied_text(rng):
    kind = rng.random()
    if kind < 0.5:
        words = say.ITEMS + say.COLOURS + say.PLACES + say.PEOPLE
        return " ".join(rng.choice(words) for _ in range(rng.randrange(1, 8)))
    if kind < 0.65:
        return " ".join(str(number(rng)) for _ in range(rng.randrange(1, 7)))
    if kind < 0.85:
        facts = BoxFacts(rng, 1) if rng.random() < 0.5 else PersonFacts(rng, 1)
        return facts.sentences(rng)[0]
    return " ".join(odd_word(rng) for _ in range(rng.randrange(1, 4)))


def copy(rng):
    text = copied_text(rng)
    return fill(rng, say.COPY, text=text), text


def listed(rng, words):
    """A list as people write it: "a, b, c", "a b c" or "a, b and c"."""
    kind = rng.random()
    if kind < 0.5:
        return ", ".join(words)
    if kind < 0.75:
        return " ".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]


def sort(rng):
    numbers = rng.sample(range(100), rng.randrange(2, 6))
    down = rng.random() < 0.35
    question = fill(rng, say.SORT_DOWN if down else say.SORT_UP, list=listed(rng, [str(n) for n in numbers]))
    return question, ", ".join(str(n) for n in sorted(numbers, reverse=down))


def count(rng):
    if rng.random() < 0.55:
        words = rng.sample(rng.choice([say.ITEMS, say.COLOURS, say.PEOPLE]), rng.randrange(2, 10))
        return fill(rng, say.COUNT_ALL, list=listed(rng, words)), f"There are {len(words)} things."
    word, *others = rng.sample(say.ITEMS, rng.randrange(2, 5))
    times = rng.randrange(1, 6)
    words = [word] * times + [rng.choice(others) for _ in range(rng.randrange(1, 5))]
    rng.shuffle(words)
    question = fill(rng, say.COUNT_WORD, word=word, list=", ".join(words) if rng.random() < 0.6 else " ".join(words))
    return question, f"The word {word} appears {times} time{'s' if times > 1 else ''}."


def compare(rng):
    a, b = rng.sample(range(100), 2)
    if rng.random() < 0.2:
        b = min(99, a // 10 * 10 + rng.randrange(10))
        if a == b:
            b = a + 1 if a < 99 else a - 1
    larger = rng.random() < 0.5
    if rng.random() < 0.65:
        first, second = (max(a, b), min(a, b)) if larger else (min(a, b), max(a, b))
        question = fill(rng, say.COMPARE_LARGER if larger else say.COMPARE_SMALLER, a=a, b=b)
        return question, f"{first} is {'larger' if larger else 'smaller'} than {second}."
    question = fill(rng, say.CHECK_LARGER if larger else say.CHECK_SMALLER, a=a, b=b)
    return question, f"{'Yes' if (a > b) == larger else 'No'}, {a} is {'larger' if a > b else 'smaller'} than {b}."


def odd_word(rng):
    if rng.random() < 0.15:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 7)))
    word = "".join(rng.choice(talk.SYLLABLES) for _ in range(rng.randrange(1, 4)))
    return upper_first(word) if rng.random() < 0.2 else word


def far_question(rng):
    """Something outside the world, in known or invented words."""
    if rng.random() < 0.15:
        return " ".join(odd_word(rng) for _ in range(rng.randrange(1, 6)))
    names = [odd_word(rng) if rng.random() < 0.5 else rng.choice(talk.FAR_SUBJECTS) for _ in range(2)]
    return fill(rng, talk.FAR_PHRASES, x=names[0], y=names[1])


def small_talk(rng):
    kind = rng.random()
    if kind < 0.3:
        return far_question(rng), say.ONLY_KNOW
    if kind < 0.4:
        name = rng.choice(say.PEOPLE)
        return fill(rng, say.NAME_FACTS, name=name), f"Nice to meet you, {name}."
    if kind < 0.5:
        facts = BoxFacts(rng, 1) if rng.random() < 0.6 else PersonFacts(rng, 1)
        return (facts.ask_absent(rng)) if rng.random() < 0.5 else (facts.sentences(rng)[0], say.ACKNOWLEDGE)
    questions, answer = rng.choice(talk.SMALL_TALK)
    return loosen(rng, rng.choice(questions)), answer


def loosen(rng, text):
    """Small talk as typed: with or without the final mark and the capital."""
    if rng.random() < 0.3 and text[-1] in ".!?":
        text = text[:-1]
    elif rng.random() < 0.3 and text[-1] not in ".!?":
        text += rng.choice(".!")
    return text.lower() if rng.random() < 0.3 else text


SIMPLE = {"add": add, "subtract": subtract, "copy": copy, "sort": sort, "count": count, "compare": compare}


def turns(*pairs):
    """(user, assistant) texts -> messages."""
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in pairs for role, text in zip(roles, pair)]


def join(rng, sentences):
    """Facts as one text; now and then two are joined by "and"."""
    text = " ".join(sentences)
    if len(sentences) > 1 and sentences[1].startswith(("The ", "There ", "In ")) and rng.random() < 0.2:
        text = text.replace(". ", " and ", 1).replace(" and " + sentences[1][0], " and " + sentences[1][0].lower(), 1)
    return text


def tell_and_ask(rng, facts, questions):
    """A chat in which facts are told and then asked for, `questions` times."""
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


def long_facts(rng, words):
    """Facts of both kinds and fillers, `words` long or a little more: (facts, sentences with owners)."""
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
    """One long text and questions about it, or the same told in several turns."""
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
    return turns((tell, f"Nice to meet you, {name}."), *middle, (rng.choice(say.NAME_ASKS), f"Your name is {name}."))


def polite(rng, messages):
    """Writes some user turns as people type: in lower case, without the last mark, with a greeting."""
    kind = rng.random()
    for message in messages:
        if message["role"] == "user" and kind < 0.16:
            text = message["content"]
            text = text.lower() if kind < 0.08 else text.rstrip("?.!")
            message["content"] = rng.choice(["Hello! ", "Hi! ", "Please: ", "Hi, "]) + text if kind > 0.13 else text
    return messages


def chat(rng, shares):
    """One training chat of a task drawn by its share."""
    task = rng.choices(list(shares), list(shares.values()))[0]
    if task in SIMPLE:
        messages = turns(*[SIMPLE[task](rng) for _ in range(rng.choice([1, 1, 2, 3]))])
        return messages if task == "copy" else polite(rng, messages)
    if task == "small_talk":
        return name_chat(rng) if rng.random() < 0.2 else turns(*[small_talk(rng) for _ in range(rng.choice([1, 1, 2, 3]))])
    if task == "unknown":
        facts = (BoxFacts if rng.random() < 0.5 else PersonFacts)(rng, rng.randrange(1, 4))
        return turns((join(rng, facts.sentences(rng)) + " " + (asked := facts.ask_absent(rng))[0], asked[1]))
    facts = (BoxFacts if task == "recall_box" else PersonFacts)(rng, rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6]))
    return polite(rng, tell_and_ask(rng, facts, rng.choice([1, 2, 3, 4])))


def mixed_chat(rng):
    """A chat that goes through several tasks: facts first, other turns, facts asked for."""
    facts = BoxFacts(rng, 3) if rng.random() < 0.5 else PersonFacts(rng, 3)
    between = [small_talk(rng) if rng.random() < 0.3 else rng.choice(list(SIMPLE.values()))(rng)
               for _ in range(rng.randrange(1, 7))]
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
            if not any(m["content"].lower() in self.excluded for m in messages if m["role"] == "user"):
                return messages

    def short(self, rng):
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
        return (prompt, say.ONLY_KNOW) if prompt not in talk.FAR_PHRASES else held_out_prompt(rng, task)
    if task == "recall_long":
        used = long_facts(rng, LONG_WORDS + 20)
        known = [entry for entry in used[:4] if entry[1] is not None]
        if not known:
            return held_out_prompt(rng, task)
        entry = rng.choice(known)
        tail = " ".join(e[0] for e in used[used.index(entry) + 1:])
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
        wanted = HELD_OUT_PER_TASK if task in SCORED else HELD_OUT_ROWS - HELD_OUT_PER_TASK * len(SCORED)
        made = 0
        while made < wanted:
            prompt, answer = held_out_prompt(rng, task)
            if prompt.lower() in seen:
                continue
            seen.add(prompt.lower())
            made += 1
            rows.append({"id": f"{task}-{made:02}", "task": task,
                         "messages": [{"role": "user", "content": prompt}], "expect": answer})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", metavar="FILE", help="write the held-out prompts as JSON lines")
    parser.add_argument("--chats", type=int, default=0, metavar="N", help="print N training chats as JSON lines")
    parser.add_argument("--long", action="store_true", help="print long chats instead of short ones")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.held_out:
        with open(arguments.held_out, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in held_out())
    corpus, rng = Corpus(), random.Random(arguments.seed)
    for _ in range(arguments.chats):
        messages = corpus.long(rng) if arguments.long else corpus.short(rng)
        sys.stdout.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main()
