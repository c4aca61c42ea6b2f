#!/usr/bin/env python3
"""Writes a request trace for `hyb replay`, the same one for the same seed.

    scripts/measure/make_trace.py chat --seed 1 -o chat.jsonl
    scripts/measure/make_trace.py sharegpt --import conversations.json -o mine.jsonl

One request a line, in order of arrival:
{"t": seconds, "session": id, "turn": k, "prompt": [[segment, length], ...], "output": [...]}.
A segment stands for `length` fixed tokens; the same segment means the same tokens.

chat       conversations of short messages
sharegpt   longer conversations, with longer messages
reasoning  a system prompt; answers begin with thinking that the history leaves out
swe        coding agent whose history loses an old observation every turn
agent      coding agent whose history only grows
batch      groups of prompts that share a long prefix, in random order
rag        questions about a few documents of a common set
fewshot    questions after the examples of one of a few tasks
best-of-n  every prompt several times
gsp        SGLang's generated shared prefixes: groups with a common system prompt, in random order
shift      chat, then agents, then chat, then agents
"""

import argparse
import heapq
import json
import math
import random
import sys

LENGTH_MAX = 32768  # of one request: history, input and output
TOKENS_PER_WORD, WORDS_PER_SECOND = 4 / 3, 1.5  # a user types 90 words a minute
OUTPUT_TOKENS_PER_SECOND = 60
CHARACTERS_PER_TOKEN = 4

SYSTEM, USER, ASSISTANT, END = 1, 2, 3, 4  # segments that all sessions share
HEADER_TOKENS, END_TOKENS = 5, 2


class Segments:
    """Allocates unique segments."""

    def __init__(self):
        self.last = 100

    def fresh(self, length):
        self.last += 1
        return [self.last, max(1, int(length))]


class Source:
    """The random numbers of one trace, and its arguments."""

    def __init__(self, arguments, segments=None):
        self.arguments = arguments
        self.random = random.Random(f"{arguments.workload} {arguments.seed}")
        self.segments = segments or Segments()

    def length(self, median, sigma, low=2, high=8000):
        return min(high, max(low, int(median * math.exp(sigma * self.random.gauss(0, 1)))))

    def fresh(self, *parameters):
        return self.segments.fresh(self.length(*parameters))

    def turns(self, least, mean_more):
        return least + int(self.random.expovariate(1 / mean_more))

    def arrivals(self, count):
        """Poisson, or one session every 1/rate seconds."""
        now = 0.0
        for _ in range(count):
            yield now
            rate = self.arguments.sessions_per_s
            now += 1 / rate if self.arguments.arrivals == "even" else self.random.expovariate(rate)

    def pause(self, mean):
        gap = self.arguments.gap if self.arguments.gap is not None else mean
        return self.random.expovariate(1 / gap) if gap > 0 else 0.0


def message(role, *content):
    return [[role, HEADER_TOKENS], *content, [END, END_TOKENS]]


def tokens_of(segments):
    return sum(length for _, length in segments)


def request(time, session, turn, prompt, output):
    return {"t": round(time, 3), "session": session, "turn": turn,
            "prompt": [list(segment) for segment in prompt], "output": output}


def typing_seconds(source, user):
    if source.arguments.gap is not None:
        return source.pause(0)
    return tokens_of([user]) / TOKENS_PER_WORD / WORDS_PER_SECOND


def conversation(source, time, session, exchanges, system=None, paced=False):
    """`exchanges`: (user segment, thinking segment or None, answer segment) for every turn."""
    history = message(SYSTEM, system) if system else []
    for turn, (user, thinking, answer) in enumerate(exchanges):
        if turn > 0:
            time += typing_seconds(source, user)
        prompt = history + message(USER, user) + [[ASSISTANT, HEADER_TOKENS]]
        output = ([thinking] if thinking else []) + [answer]
        if tokens_of(prompt + output) > LENGTH_MAX:
            return
        yield request(time, session, turn, prompt, output)
        if paced:
            time += tokens_of(output) / OUTPUT_TOKENS_PER_SECOND
        history = prompt + [answer, [END, END_TOKENS]]


def exchanges(source, turns, user, answer, thinking=None):
    for _ in range(turns):
        yield (source.fresh(*user), source.fresh(*thinking) if thinking else None,
               source.fresh(*answer))


def chat(source):
    for session, time in enumerate(source.arrivals(source.arguments.sessions)):
        talk = exchanges(source, source.turns(10, 5), (30, 1.2, 2, 3000), (190, 0.8, 5, 1500))
        yield conversation(source, time, f"chat-{session}", talk)


def sharegpt(source):
    for session, time in enumerate(source.arrivals(source.arguments.sessions)):
        talk = exchanges(source, source.turns(10, 8), (60, 1.5), (220, 0.9))
        yield conversation(source, time, f"sharegpt-{session}", talk)


def reasoning(source):
    system = source.segments.fresh(350)
    for session, time in enumerate(source.arrivals(source.arguments.sessions)):
        talk = exchanges(source, source.turns(6, 6), (30, 1.2, 2, 3000), (300, 0.8), (500, 0.9))
        yield conversation(source, time, f"reasoning-{session}", talk, system, paced=True)


def agent_session(source, time, session, system, collapses):
    """A task, then actions and observations. With `collapses` the observation of the fifth-last
    pair leaves the history at every turn once there are six."""
    turns = 51 if source.random.random() < 0.25 else min(51, source.turns(8, 18))
    head = message(SYSTEM, system) + message(USER, source.fresh(450, 0.8))
    pairs = []  # (action, observation)
    for turn in range(turns):
        if collapses and len(pairs) >= 6:
            pairs[-5] = (pairs[-5][0], [])
        prompt = list(head)
        for action, observation in pairs:
            prompt += action + observation
        prompt.append([ASSISTANT, HEADER_TOKENS])
        act = source.fresh(90, 0.7)
        if tokens_of(prompt + [act]) > LENGTH_MAX:
            return
        yield request(time, session, turn, prompt, [act])
        pairs.append((message(ASSISTANT, act), message(USER, source.fresh(450, 1.3, 20, 8000))))
        time += source.pause(10)


def swe(source):
    system = source.segments.fresh(1500)
    for session, time in enumerate(source.arrivals(source.arguments.sessions)):
        yield agent_session(source, time, f"swe-{session}", system, collapses=True)


def agent(source):
    system = source.segments.fresh(2600)
    for session, time in enumerate(source.arrivals(source.arguments.sessions)):
        yield agent_session(source, time, f"agent-{session}", system, collapses=False)


def single_prompts(source, name, prompts):
    """Prompts without a second turn, in the order given."""
    for number, (time, (prompt, output)) in enumerate(zip(source.arrivals(len(prompts)), prompts)):
        whole = prompt + [[ASSISTANT, HEADER_TOKENS]]
        yield [request(time, f"{name}-{number}", 0, whole, [output])]


def batch(source):
    system, prompts = source.segments.fresh(400), []
    for _ in range(60):
        group = source.fresh(2000, 0.6)
        prompts += [(message(SYSTEM, system) + message(USER, group, source.fresh(250, 0.7)),
                     source.fresh(120, 0.7)) for _ in range(25)]
    source.random.shuffle(prompts)
    yield from single_prompts(source, "batch", prompts)


def rag(source):
    system, questions = source.segments.fresh(200), 10 * source.arguments.sessions
    documents = [source.fresh(500, 0.6) for _ in range(200)]
    weights = [1 / rank for rank in range(1, len(documents) + 1)]
    prompts = []
    for _ in range(questions):
        found = {}
        while len(found) < 3:
            document = source.random.choices(documents, weights)[0]
            found[document[0]] = document
        prompts.append((message(SYSTEM, system) +
                        message(USER, *found.values(), source.fresh(40, 0.7)),
                        source.fresh(150, 0.7)))
    yield from single_prompts(source, "rag", prompts)


def fewshot(source):
    tasks = [source.fresh(1500, 0.5) for _ in range(20)]
    prompts = [(message(USER, source.random.choice(tasks), source.fresh(60, 0.7)),
                source.fresh(20, 0.7)) for _ in range(10 * source.arguments.sessions)]
    yield from single_prompts(source, "fewshot", prompts)


def best_of_n(source):
    prompts = []
    for _ in range(source.arguments.sessions):
        prompt = message(USER, source.fresh(500, 0.8))
        prompts += [(prompt, source.fresh(300, 0.8)) for _ in range(8)]
    yield from single_prompts(source, "best-of-n", prompts)


def gsp(source):
    prompts = []
    for _ in range(64):
        system = source.segments.fresh(2048)
        prompts += [(message(SYSTEM, system) + message(USER, source.segments.fresh(128)),
                     source.segments.fresh(256)) for _ in range(16)]
    source.random.shuffle(prompts)
    yield from single_prompts(source, "gsp", prompts)


def shift(source):
    start = 0.0
    for phase, workload in enumerate([chat, agent, chat, agent]):
        part = Source(source.arguments, source.segments)
        part.random = random.Random(f"shift {source.arguments.seed} {phase}")
        end = start
        for session in workload(part):
            moved = [dict(one, t=round(start + one["t"], 3),
                          session=f"{phase}-{one['session']}") for one in session]
            end = max([end] + [one["t"] for one in moved])
            yield moved
        start = end


def imported(source, path):
    """Conversations [{"conversations": [{"from": "human" | "gpt" | "system", "value": text}]}]."""
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    known = {}

    def segment(text):
        if text not in known:
            known[text] = source.segments.fresh(len(text) / CHARACTERS_PER_TOKEN)
        return known[text]

    rows = [row.get("conversations", []) for row in rows][:source.arguments.sessions]
    for session, (time, row) in enumerate(zip(source.arrivals(len(rows)), rows)):
        system, users, talk = None, [], []
        for part in row:
            role, text = part.get("from"), part.get("value", "")
            if role == "system" and not talk and not users:
                system = segment(text)
            elif role in ("human", "user"):
                users.append(segment(text))
            elif role in ("gpt", "assistant", "chatgpt") and users:
                talk.append((users[-1], None, segment(text)))
                users = []
        yield conversation(source, time, f"import-{session}", talk, system)


WORKLOADS = {"chat": chat, "sharegpt": sharegpt, "reasoning": reasoning, "swe": swe,
             "agent": agent, "batch": batch, "rag": rag, "fewshot": fewshot,
             "best-of-n": best_of_n, "gsp": gsp, "shift": shift}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=100,
                        help="conversations, or a tenth of the prompts; of each phase of shift")
    parser.add_argument("--sessions-per-s", type=float, default=1.0)
    parser.add_argument("--arrivals", choices=["poisson", "even"], default="poisson")
    parser.add_argument("--gap", type=float,
                        help="mean seconds between the requests of a session")
    parser.add_argument("--import", dest="file", help="ShareGPT-style JSON instead of made-up text")
    parser.add_argument("-o", "--output", default="-")
    arguments = parser.parse_args()
    if arguments.sessions < 1 or arguments.sessions_per_s <= 0 or (arguments.gap or 0) < 0:
        parser.error("--sessions, --sessions-per-s and --gap have to be positive")
    return arguments


def main():
    arguments = parse_arguments()
    source = Source(arguments)
    sessions = (imported(source, arguments.file) if arguments.file
                else WORKLOADS[arguments.workload](source))
    # A session's own requests come in order, and its random numbers before those of the next.
    sessions = [list(session) for session in sessions]
    requests = heapq.merge(*sessions, key=lambda one: one["t"])
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in requests)
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
