"""The questions of the demo model's world: facts to state and to ask for, and small tasks.

Every task is a function of a random.Random that returns (question, answer); every question has one
canonical answer.
"""

from demo import phrases as say, talk


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

    def sentences(self, rng, phrases=None):
        phrases = phrases or say.BOX_FACTS
        return [fill(rng, phrases, **self.names(box, item)) for box, item in self.pairs]

    def ask_plainly(self, rng, which):
        """As ask, in the first wording that comes to mind."""
        box, item = self.pairs[which]
        if rng.random() < 0.5:
            return say.BOX_WHAT[0].format(box=box), f"The {box} holds {an(item)}."
        return say.BOX_WHERE[0].format(item=item), f"The {item} is in the {box}."

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
        return (
            fill(rng, say.BOX_CHECK, **self.names(other, item)),
            f"{answer}, the {item} is in the {box}.",
        )

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
            value = {
                "place": lambda: places.pop(),
                "job": lambda: rng.choice(say.JOBS),
                "likes": lambda: rng.choice(say.LIKES),
                "age": lambda: str(rng.randrange(1, 100)),
            }[kind]()
            self.facts.append((name, kind, value))

    def sentences(self, rng):
        return [
            fill(rng, say.PERSON_FACTS[kind], name=name, value=value)
            for name, kind, value in self.facts
        ]

    def ask(self, rng, which):
        name, kind, value = self.facts[which]
        answer = say.PERSON_ANSWERS[kind].format(name=name, value=value)
        if kind == "place" and rng.random() < 0.4:
            return fill(rng, say.WHO_ASKS, value=value), answer
        return fill(rng, say.PERSON_ASKS[kind], name=name), answer

    def ask_absent(self, rng):
        kind = rng.choice(list(say.PERSON_ASKS))
        return fill(rng, say.PERSON_ASKS[kind], name=self.absent), say.PERSON_UNKNOWN[kind].format(
            name=self.absent
        )


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
    question = fill(
        rng, say.SORT_DOWN if down else say.SORT_UP, list=listed(rng, [str(n) for n in numbers])
    )
    return question, ", ".join(str(n) for n in sorted(numbers, reverse=down))


def count(rng):
    if rng.random() < 0.55:
        words = rng.sample(rng.choice([say.ITEMS, say.COLOURS, say.PEOPLE]), rng.randrange(2, 10))
        return fill(rng, say.COUNT_ALL, list=listed(rng, words)), f"There are {len(words)} things."
    word, *others = rng.sample(say.ITEMS, rng.randrange(2, 5))
    times = rng.randrange(1, 6)
    words = [word] * times + [rng.choice(others) for _ in range(rng.randrange(1, 5))]
    rng.shuffle(words)
    question = fill(
        rng,
        say.COUNT_WORD,
        word=word,
        list=", ".join(words) if rng.random() < 0.6 else " ".join(words),
    )
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
    return (
        question,
        f"{'Yes' if (a > b) == larger else 'No'}, "
        f"{a} is {'larger' if a > b else 'smaller'} than {b}.",
    )


def odd_word(rng):
    if rng.random() < 0.15:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 7)))
    word = "".join(rng.choice(talk.SYLLABLES) for _ in range(rng.randrange(1, 4)))
    return upper_first(word) if rng.random() < 0.2 else word


def far_question(rng):
    """Something outside the world, in known or invented words."""
    if rng.random() < 0.15:
        return " ".join(odd_word(rng) for _ in range(rng.randrange(1, 6)))
    names = [
        odd_word(rng) if rng.random() < 0.5 else rng.choice(talk.FAR_SUBJECTS) for _ in range(2)
    ]
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
        return (
            (facts.ask_absent(rng))
            if rng.random() < 0.5
            else (facts.sentences(rng)[0], say.ACKNOWLEDGE)
        )
    questions, answer = rng.choice(talk.SMALL_TALK)
    return loosen(rng, rng.choice(questions)), answer


def loosen(rng, text):
    """Small talk as typed: with or without the final mark and the capital."""
    if rng.random() < 0.3 and text[-1] in ".!?":
        text = text[:-1]
    elif rng.random() < 0.3 and text[-1] not in ".!?":
        text += rng.choice(".!")
    return text.lower() if rng.random() < 0.3 else text


SIMPLE = {
    "add": add,
    "subtract": subtract,
    "copy": copy,
    "sort": sort,
    "count": count,
    "compare": compare,
}
