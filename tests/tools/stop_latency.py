#!/usr/bin/env python3
"""How soon Ctrl-C in a long prompt is acknowledged, and takes effect, in hyb chat at a terminal.

    tests/tools/stop_latency.py build/hyb MODEL [--tokens 8000] [--times 50] [CHAT-OPTIONS]

Every time the prompt is another one, and Ctrl-C comes at a random moment of its reading.
"""

import argparse
import os
import pty
import random
import select
import statistics
import time

WORDS = "the red box holds a coin and one key while two bags are near it".split()


class Chat:
    def __init__(self, command):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execvp(command[0], command)
        self.screen = b""

    def write(self, data):
        while data:  # the terminal's buffer is small: what is echoed is read meanwhile
            readable, writable, _ = select.select([self.terminal], [self.terminal], [])
            if readable:
                self.screen += os.read(self.terminal, 65536)
            if writable:
                data = data[os.write(self.terminal, data[:1024]):]

    def wait_for(self, text, seconds=300):
        """The time at which the text has come since the last forget()."""
        deadline = time.monotonic() + seconds
        while text not in self.screen:
            if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise SystemExit(f"no {text!r} in {seconds} s: {self.screen[-300:]!r}")
            self.screen += os.read(self.terminal, 65536)
        return time.monotonic()

    def forget(self):
        self.screen = b""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("hyb")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5, help="Ctrl-C comes within these")
    options, more = parser.parse_known_args()
    chat = Chat([options.hyb, "chat", options.model, "--no-history", *more])
    chat.wait_for(b"Ctrl-D leaves")
    draw = random.Random(1)
    acknowledged, stopped = [], []
    for _ in range(options.times):
        prompt = " ".join(draw.choice(WORDS) for _ in range(options.tokens))
        chat.write(b"\x1b[200~" + prompt.encode() + b"\x1b[201~")
        time.sleep(1)
        chat.forget()
        chat.write(b"\r")
        chat.wait_for(b"reading ")
        time.sleep(draw.uniform(0, options.seconds))
        begin = time.monotonic()
        chat.write(b"\x03")
        acknowledged.append(chat.wait_for(b"stopping ...") - begin)
        stopped.append(chat.wait_for(b"stopped before the answer began") - begin)
    for name, times in (("acknowledged", acknowledged), ("stopped", stopped)):
        print(f"{name:<13} p50 {statistics.median(times):.3f} s, worst of {len(times)} "
              f"{max(times):.3f} s")
    chat.write(b"\x04")


main()
