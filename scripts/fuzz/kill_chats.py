#!/usr/bin/env python3
"""Kill chats at random moments, and see that no turn is lost.

    scripts/fuzz/kill_chats.py build/hyb [MODEL] [--kills 100] [--option=-n --option=40 ...]

Asks a chat some questions, undisturbed. Then asks them again with a session that is killed
(SIGKILL) at random moments and continued: what was not answered to the end is answered by /regen,
the others follow. After every kill the session has each question whose answer had begun, every
answer that is not marked as stopped is that of the undisturbed chat, and the one that is marked is
a beginning of it. In the end the whole chat is the undisturbed one. Then begins the next. Prints
the figures; exit 1 at the first rule that does not hold.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

QUESTIONS = ["What is 12 plus 30?", "Tom has a red ball. What color is it?", "Tell me a story.",
             "What is 7 minus 2?", "The box holds a coin. Where is it?", "Count from one to ten.",
             "What is 3 times 4?", "Who are you?", "Tell me another story.", "What was first?"]
STOPPED = "assistant (stopped):"


class Trial:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.draw = random.Random(args.seed)
        self.environment = {**os.environ, "XDG_DATA_HOME": str(folder)}
        self.kills, self.within, self.chats, self.bytes_max = 0, 0, 0, 0

    def fail(self, what):
        raise SystemExit(f"chat {self.chats + 1}, after {self.kills} kills: {what}")

    def call(self, *arguments):
        return subprocess.run([self.args.hyb, *arguments], env=self.environment, check=True,
                              stdout=subprocess.PIPE, encoding="utf-8").stdout

    def start(self, session, lines):
        process = subprocess.Popen(
            [self.args.hyb, "chat", self.args.model, "--temp", "0", "--session", session,
             *self.args.option], env=self.environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        process.stdin.write("".join(line + "\n" for line in lines))
        process.stdin.close()
        return process

    def has(self, session):
        return (self.folder / "hyb" / "sessions" / f"{session}.session").exists()

    def said(self, session):
        """The messages of the session, and whether the last answer is a part of one."""
        if not self.has(session):
            return [], False
        messages = json.loads(self.call("sessions", "show", session, "--json"))["messages"]
        return messages, STOPPED in self.call("sessions", "show", session)

    def check(self, session, expected, seen):
        """What there is after a kill is right; returns the lines that are still to be entered."""
        messages, is_part = self.said(session)
        if len(messages) < seen:
            self.fail(f"{len(messages)} messages are left of {seen}")
        for at, message in enumerate(messages):
            is_last = is_part and at == len(messages) - 1
            if message == expected[at]:
                continue
            if not is_last or not expected[at]["content"].startswith(message["content"]):
                self.fail(f"{message} instead of {expected[at]}")
        self.within += is_part
        rest = QUESTIONS[len(messages) // 2:]
        return (["/regen"] if is_part else []) + rest, len(messages) - is_part

    def run_chat(self, expected, seconds):
        session, lines, known = f"chat-{self.chats}", QUESTIONS, 0
        while lines:
            process = self.start(session, lines)
            is_killed = self.kills < self.args.kills
            if is_killed:
                time.sleep(self.draw.uniform(0, 1.1 * seconds))
                process.kill()
                self.kills += 1
            shown, said = process.stdout.read(), process.stderr.read()
            if process.wait() not in (0, -9) or "error" in said:
                self.fail(f"exit {process.returncode}\n{said}")
            # An answer had begun, so its question was saved.
            begun = 1 if shown and lines[0] != "/regen" else 0
            lines, known = self.check(session, expected, known + begun)
            if self.has(session):
                path = self.folder / "hyb" / "sessions" / f"{session}.session"
                self.bytes_max = max(self.bytes_max, path.stat().st_size)
            if not is_killed and lines:
                self.fail(f"not all was answered: {lines}")
        if self.said(session) != (expected, False):
            self.fail("another chat than the undisturbed one")
        self.call("sessions", "rm", session)
        self.chats += 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hyb", help="the binary")
    parser.add_argument("model", nargs="?", default="demo", help="a model folder, or demo")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[],
                        help="one more for hyb chat: --option=-n --option=40")
    return parser.parse_args()


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(args, pathlib.Path(name))
        begin = time.monotonic()
        whole = trial.start("whole", QUESTIONS)
        whole.stdout.read()
        whole.wait()
        seconds = time.monotonic() - begin
        expected, is_part = trial.said("whole")
        if len(expected) != 2 * len(QUESTIONS) or is_part:
            trial.fail("the undisturbed chat has not all answers")
        while trial.kills < args.kills:
            trial.run_chat(expected, seconds)
        print(f"{trial.kills} kills of {trial.chats} chats of {len(QUESTIONS)} turns, "
              f"{trial.within} within an answer: no turn lost, the texts of the undisturbed chat; "
              f"a file had at most {trial.bytes_max} bytes")


if __name__ == "__main__":
    sys.exit(main())
