"""What `--snapshots int8` costs the demo model in right answers.

The held-out prompts of tests/demo, greedily, once with exact and once with int8 snapshots:

  again          every prompt twice in one `hyb batch`; the second answer is scored
  conversations  prompts grouped at random, each line a longer piece of its conversation with the
                 right answers as history: every turn goes on from a snapshot of the one before
  chat           the same groups typed into `hyb chat`, which answers from its own history; every
                 turn is answered, undone (/undo), repeated and answered again (/regen)

Every answer is really one from a snapshot. Exit 1 when a difference is over a point, or snapshots
were hardly used. How far the distributions of next tokens move:
hyb verify --snapshots int8 --requests tests/demo/heldout.jsonl
"""

import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

from demo.evaluate import HELD_OUT, MAX_TOKENS, UNSCORED, is_right

COLUMNS = ("", "answers", "exact, % right", "int8, % right", "points", "answers that differ",
           "from an int8 snapshot")
POINTS_MAX = 1.0
USED_MIN = 0.9  # of the scored answers


def add_options(parser):
    parser.add_argument("--turns", type=int, default=5, help="of a conversation")
    parser.add_argument("--seed", type=int, default=1, help="of the groups")


def conversations(rows, turns, seed):
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    return [rows[at : at + turns] for at in range(0, len(rows), turns)]


def batch(hyb, lines, snapshots, folder):
    """{custom_id: (answer, came from an int8 snapshot)}"""
    source, target = folder / "in.jsonl", folder / f"{snapshots}.jsonl"
    with open(source, "w", encoding="utf-8") as out:
        for name, messages in lines:
            body = {"messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
            out.write(json.dumps({"custom_id": name, "body": body}) + "\n")
    command = [hyb, "batch", "demo", source, "-o", target, "--snapshots", snapshots,
               "--order", "file"]
    subprocess.run(command, check=True, capture_output=True)
    answers = {}
    for line in target.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        body = result["response"]["body"]
        text = body["choices"][0]["message"]["content"]
        answers[result["custom_id"]] = (text, "reused_precision" in body["usage"])
    return answers


def ask_again(rows, hyb, snapshots, folder):
    """Of the two answers to a prompt the one that was given from a snapshot, or else the last."""
    lines = [(f"{row['id']} {i}", row["messages"]) for i in range(2) for row in rows]
    answers = batch(hyb, lines, snapshots, folder)
    for row in rows:
        pair = [answers[f"{row['id']} {i}"] for i in range(2)]
        yield row, *max(pair, key=lambda answer: answer[1])


def answer_conversations(groups, hyb, snapshots, folder):
    lines = []
    for group in groups:
        history = []
        for row in group:
            history = history + row["messages"]
            lines.append((row["id"], history))
            history = history + [{"role": "assistant", "content": row["expect"]}]
    answers = batch(hyb, lines, snapshots, folder)
    for group in groups:
        for row in group:
            yield row, *answers[row["id"]]


class Chat:
    """`hyb chat` over pipes. /stats, which goes to stderr, marks the end of each answer."""

    def __init__(self, hyb, snapshots, home):
        self.process = subprocess.Popen(
            [hyb, "chat", "--temperature", "0", "-n", str(MAX_TOKENS), "--snapshots", snapshots,
             "--no-history"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "XDG_DATA_HOME": home}, bufsize=0)
        os.set_blocking(self.process.stdout.fileno(), False)

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")

    def answer(self, text):
        """(answer, came from an int8 snapshot)"""
        self.say(text)
        self.say("/stats")
        stats = b""
        while not re.search(rb"this chat\n.*generated\n", stats):
            more = os.read(self.process.stderr.fileno(), 65536)
            if not more:
                raise SystemExit(f"hyb chat ended: {stats.decode()}")
            stats += more
        return self.process.stdout.read().decode(), b"from an int8 snapshot" in stats

    def close(self):
        self.process.communicate()


def talk(groups, hyb, snapshots, folder):
    """Both later answers of each turn: the repeated one and the one after /regen."""
    for group in groups:
        chat = Chat(hyb, snapshots, str(folder))
        for count, row in enumerate(group):
            question = row["messages"][0]["content"]
            chat.answer(question)
            chat.say("/undo")
            yield row, *chat.answer(question)
            # A greedy answer is given again only where something is set to another value.
            chat.say(f"/set max_tokens {MAX_TOKENS + 1 + count}")
            yield row, *chat.answer("/regen")
        chat.close()


def share_right(scored):
    """Mean over the tasks, as scripts/demo/evaluate.py has it."""
    tasks = {}
    for row, answer, _ in scored:
        tasks.setdefault(row["task"], []).append(is_right(row, answer))
    shares = [sum(right) / len(right) for task, right in tasks.items() if task not in UNSCORED]
    return 100 * sum(shares) / len(shares)


def rows(args):
    prompts = [json.loads(line) for line in HELD_OUT.read_text(encoding="utf-8").splitlines()]
    groups = conversations(prompts, args.turns, args.seed)
    worse = []
    for name, way, given in (("again", ask_again, prompts),
                             ("conversations", answer_conversations, groups),
                             ("chat", talk, groups)):
        with tempfile.TemporaryDirectory() as folder:
            exact, int8 = (list(way(given, args.hyb, snapshots, pathlib.Path(folder)))
                           for snapshots in ("exact", "int8"))
        differ = sum(a[1] != b[1] for a, b in zip(exact, int8))
        used = sum(came for *_, came in int8)
        before, after = share_right(exact), share_right(int8)
        yield (name, str(len(int8)), f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}",
               str(differ), str(used))
        if abs(after - before) > POINTS_MAX or used < USED_MIN * len(int8):
            worse.append(name)
    if worse:
        raise SystemExit(f"worse, or hardly from snapshots: {', '.join(worse)}")
