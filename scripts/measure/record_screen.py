#!/usr/bin/env python3
"""Run a program in a terminal, type lines into it, and write what is then on the screen as SVG.

    scripts/measure/record_screen.py -o screen.svg [--size 92x30] [--wait 3] COMMAND -- LINE ...

The terminal is tmux's, the text is what the program really wrote; after every line the script waits
until the screen has been still for --wait seconds. Colours are those of the terminal's palette, in
a light and in a dark variant, which the viewer's setting picks.
"""

import argparse
import html
import re
import subprocess
import sys
import time

CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 18, 12
SESSION = "hyb-screen"
# Foreground colours 30 to 37 as classes: in light, in dark.
COLOURS = ("#24292f #8b949e", "#b42318 #ff7b72", "#116329 #7ee787", "#7d4e00 #e3b341",
           "#0550ae #79c0ff", "#8250df #d2a8ff", "#1b7c83 #76e3ea", "#57606a #c9d1d9")


def tmux(*words):
    return subprocess.run(["tmux", "-L", SESSION, *words], check=True, capture_output=True,
                          text=True).stdout


def screen():
    return tmux("capture-pane", "-t", SESSION, "-e", "-p").rstrip("\n").split("\n")


def wait_until_still(seconds, limit=120):
    before, still_since = None, time.monotonic()
    end = still_since + limit
    while time.monotonic() < end:
        now = screen()
        if now != before:
            before, still_since = now, time.monotonic()
        elif time.monotonic() - still_since >= seconds:
            return now
        time.sleep(0.1)
    sys.exit(f"the screen was not still for {seconds} s within {limit} s")


def record(command, lines, size, wait):
    """What is on the screen after the last line: lines with SGR sequences."""
    width, height = size.split("x")
    tmux("-f", "/dev/null", "new-session", "-d", "-s", SESSION, "-x", width, "-y", height,
         "env", "TERM=xterm-256color", *command)
    try:
        wait_until_still(wait)
        for line in lines:
            tmux("send-keys", "-t", SESSION, "-l", line)
            tmux("send-keys", "-t", SESSION, "Enter")
            wait_until_still(wait)
        return screen()
    finally:
        tmux("kill-server")


class Style:
    """SGR attributes that are set, as class names."""

    def __init__(self):
        self.flags = set()

    def apply(self, parameters):
        codes = [int(code or 0) for code in parameters.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.flags.clear()
            elif code in (1, 2, 3, 4):
                self.flags.add({1: "b", 2: "f", 3: "i", 4: "u"}[code])
            elif code in (22, 23, 24):
                self.flags -= {22: {"b", "f"}, 23: {"i"}, 24: {"u"}}[code]
            elif 30 <= code <= 37 or 90 <= code <= 97 or code == 39:
                self.flags -= {f"c{i}" for i in range(8)}
                if code != 39:
                    self.flags.add(f"c{code % 10}")
            elif code == 38:  # a colour of 256 or of 24 bits: drawn as plain text
                del codes[:2 if codes[:1] == [5] else 4]

    def classes(self):
        return " ".join(sorted(self.flags))


def spans(line, style):
    """(text, classes) of a line; `style` goes on with the next one."""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            style.apply(part[2:-1])
        elif part:
            yield part, style.classes()


def svg(lines, width):
    rules = []
    for i, pair in enumerate(COLOURS):
        light, dark = pair.split()
        rules.append(f".c{i}{{fill:{light}}}")
        rules.append(f"@media(prefers-color-scheme:dark){{.c{i}{{fill:{dark}}}}}")
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    pixels = width * CELL_WIDTH + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {pixels:.0f} {height}" '
           f'width="{pixels:.0f}" height="{height}"><style>',
           "text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;"
           "white-space:pre;fill:#24292f}.bg{fill:#f6f8fa}",
           "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#161b22}}",
           *rules, ".b{font-weight:bold}.f{opacity:.62}.i{font-style:italic}",
           ".u{text-decoration:underline}</style>",
           f'<rect class="bg" width="{pixels:.0f}" height="{height}" rx="8"/>']
    style = Style()
    for row, line in enumerate(lines):
        y = MARGIN + (row + 1) * LINE_HEIGHT - 4
        column = 0
        texts = []
        for text, classes in spans(line, style):
            x = MARGIN + column * CELL_WIDTH
            length = len(text) * CELL_WIDTH
            texts.append(f'<tspan x="{x:.1f}" textLength="{length:.1f}" class="{classes}">'
                         f"{html.escape(text)}</tspan>")
            column += len(text)
        if texts:
            out.append(f'<text xml:space="preserve" y="{y}">{"".join(texts)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--size", default="92x40", help="columns x rows (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=3, help="seconds without a change")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="COMMAND -- LINE ...")
    options = parser.parse_args()
    words = options.words
    split = words.index("--") if "--" in words else len(words)
    lines = record(words[:split], words[split + 1:], options.size, options.wait)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(svg(lines, int(options.size.split("x")[0])))


if __name__ == "__main__":
    main()
