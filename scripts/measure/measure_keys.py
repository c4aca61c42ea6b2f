#!/usr/bin/env python3
"""Milliseconds from a key press to its echo in `hyb chat`, while it runs a prompt ahead and idle.

usage: measure_keys.py HYB MODEL [--keys N] [--words N] [more arguments of hyb chat]

The chat runs on a pseudo-terminal of its own. Its system prompt is so long that it is still being
run while the keys are pressed; then, on a second chat without one, the same keys are pressed while
nothing runs.
"""
import argparse
import os
import pty
import select
import signal
import sys
import time

WORDS = "the box is red and holds a key while the man who likes tea walks to the house by the sea"


class Chat:
    def __init__(self, command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execvp(command[0], command)

    def read(self, seconds):
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        return os.read(self.terminal, 65536) if ready else b""

    def wait_for(self, text, seconds):
        seen, end = b"", time.monotonic() + seconds
        while text not in seen:
            if time.monotonic() > end:
                sys.exit(f"the chat did not show {text!r}: {seen[-300:]!r}")
            seen += self.read(0.1)

    def press(self, key):
        """Seconds until something is drawn."""
        while self.read(0):
            pass
        begin = time.monotonic()
        os.write(self.terminal, key)
        while not self.read(5):
            if time.monotonic() - begin > 30:
                sys.exit("no echo within 30 seconds")
        return time.monotonic() - begin

    def processor_seconds(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def measure(command, keys, is_busy):
    chat = Chat(command)
    chat.wait_for(b"> ", 300)
    time.sleep(1)
    begin, used = time.monotonic(), chat.processor_seconds()
    times = []
    for i in range(keys):
        times.append(1000 * chat.press(b"\x7f" if i % 20 >= 10 else b"a"))
        time.sleep(0.03 + 0.001 * (i * 7 % 50))
    load = (chat.processor_seconds() - used) / (time.monotonic() - begin)
    chat.end()
    times.sort()
    what = "running ahead" if is_busy else "idle"
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
    print(f"{what:14} {keys} keys: median {at(.5):6.2f} ms, p90 {at(.9):6.2f}, p99 {at(.99):6.2f}, "
          f"most {times[-1]:6.2f}; {load:.2f} processors busy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hyb")
    parser.add_argument("model")
    parser.add_argument("--keys", type=int, default=300)
    parser.add_argument("--words", type=int, default=4000, help="of the system prompt")
    options, more = parser.parse_known_args()
    words = WORDS.split()
    system = " ".join(words[i % len(words)] for i in range(options.words))
    command = [options.hyb, "chat", options.model, "--no-history", *more]
    measure(command + ["--system", system], options.keys, True)
    measure(command, options.keys, False)


if __name__ == "__main__":
    main()
