"""Drills: chats that consist almost only of recalled words, so that recall is learned first.

In an ordinary chat one answer token in twenty shows whether the right fact was found. A drill
states a few facts and recites them many times in random order; only the recalled words count.
"""

from demo import phrases as say
from demo.tasks import BoxFacts, an

FACTS_TOLD = 14  # facts of a drill, stated and recited, about
ASK_ITEMS = ["Say what is in each.", "What is where?", "Say it again.", "Tell me everything."]


def distinct_pairs(rng, count):
    """Boxes that differ in colour and container, so that one word is enough to find the thing."""
    colours, containers = rng.sample(say.COLOURS, count), rng.sample(say.CONTAINERS, count)
    boxes = [f"{colour} {container}" for colour, container in zip(colours, containers)]
    return list(zip(boxes, rng.sample(say.ITEMS, count)))


def similar_pairs(rng, count):
    """Boxes that share colours and containers, so that only both words find the thing."""
    colours, containers = rng.sample(say.COLOURS, 3), rng.sample(say.CONTAINERS, 3)
    boxes = rng.sample([f"{a} {b}" for a in colours for b in containers], count)
    return list(zip(boxes, rng.sample(say.ITEMS, count)))


def recite(rng, pairs, times):
    """Facts in random order, all in one wording, and the words of them that count."""
    chosen = []
    while len(chosen) < times:
        chosen += rng.sample(pairs, len(pairs))
    if rng.random() < 0.6:
        return " ".join(f"The {box} holds {an(item)}." for box, item in chosen), say.ITEMS
    told = " ".join(f"The {item} is in the {box}." for box, item in chosen)
    return told, say.COLOURS + say.CONTAINERS


def drill(rng):
    """One chat: facts in plain or varied words, then recited."""
    facts = BoxFacts(rng, rng.choice([2, 2, 3, 3, 4, 5, 6]))
    kind = rng.random()
    if kind < 0.8:
        make = distinct_pairs if kind < 0.4 else similar_pairs
        facts.pairs = make(rng, len(facts.pairs))
    kind = rng.random()
    phrases = say.BOX_PLAIN[:1] if kind < 0.4 else say.BOX_PLAIN if kind < 0.7 else say.BOX_FACTS
    told = " ".join(facts.sentences(rng, phrases))
    answer, counted = recite(rng, facts.pairs, max(4, FACTS_TOLD - len(facts.pairs)))
    return [
        {"role": "user", "content": f"{told} {rng.choice(ASK_ITEMS)}"},
        {"role": "assistant", "content": answer, "counted": counted},
    ]
