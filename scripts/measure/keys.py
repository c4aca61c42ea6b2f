"""Milliseconds from a key press to its echo in `hyb chat`, while it runs a prompt ahead and idle.

The chat runs on a pseudo-terminal of its own. Its system prompt is so long that it is still being
run while the keys are pressed; in turns with it the same keys are pressed in a chat without one,
where nothing runs. Further arguments go to hyb chat.
"""

import os
import pty
import select
import signal
import statistics
import sys
import time

from measure.habits import in_turns, spread

COLUMNS = ("chat", "median ms", "p90", "p99", "most", "processors busy")
WORDS = "the box is red and holds a key while the man who likes tea walks to the house by the sea"


def add_options(parser):
    parser.add_argument("model")
    parser.add_argument("--keys", type=int, default=100, help="pressed in a round")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each chat")
    parser.add_argument("--words", type=int, default=4000, help="of the system prompt")


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


def press_keys(command, keys):
    """(median, p90, p99, most in milliseconds, processors busy) of one chat."""
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
    shares = statistics.quantiles(times, n=100, method="inclusive")
    return shares[49], shares[89], shares[98], max(times), load


def rows(args):
    words = WORDS.split()
    system = " ".join(words[i % len(words)] for i in range(args.words))
    command = [args.hyb, "chat", args.model, "--no-history", *args.more]
    busy = lambda: press_keys([*command, "--system", system], args.keys)
    for name, rounds in zip(("running ahead", "idle"),
                            in_turns(args.rounds, busy, lambda: press_keys(command, args.keys))):
        yield name, *(spread(values, 2) for values in zip(*rounds))
