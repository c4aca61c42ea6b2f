#!/usr/bin/env python3
"""Bytes of memory that `hyb chat` gives back while its input pauses.

usage: pss_of_idle_chat.py HYB MODE SECONDS

Asks one long question through a pipe that then stays open, and prints the largest Pss and the least
one after it, in KiB, as "LARGEST LEAST". A shared page counts once.
"""
import subprocess
import sys
import time


def pss(pid):
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def main():
    hyb, mode, seconds = sys.argv[1:]
    command = [hyb, "chat", "demo", "--memory-mode", mode, "--memory-idle", seconds,
               "--memory", "256MiB", "--prefix-cache", "off", "-n", "4", "--threads", "1",
               "--context", "16384"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as chat:
        chat.stdin.write(b"7" * 12000 + b"\n")
        chat.stdin.flush()
        largest = least = 0
        end = time.monotonic() + 30
        while time.monotonic() < end:
            now = pss(chat.pid)
            if now > largest:
                largest = least = now
            least = min(least, now)
            if least < largest - 4096:
                break
            time.sleep(0.01)
        print(largest, least)
        chat.stdin.close()
        chat.stdout.read()
    sys.exit(chat.returncode)


if __name__ == "__main__":
    main()
