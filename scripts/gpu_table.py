#!/usr/bin/env python3
"""Prints the README's table of what a card was measured to do.

    scripts/gpu_table.py tests/gpu/results-<card>.jsonl

The file is what scripts/gpu_check.sh writes. Rates are means with their spread, beside the share of
what the same run probed: of the card's read bandwidth and of its bf16 multiply-add rate. Rows that
were cut or failed are named, so that they are not taken for measured.
"""

import argparse
import json
import pathlib
import sys


def lines_of(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def share(row, rate):
    """In %; nothing where the row has not both."""
    achieved, probe = row.get(rate), row.get(f"probe_{rate}")
    return f"{100 * achieved / probe:.0f} %" if achieved and probe else ""


def test_name(row):
    """As llama-bench has it: pp512, tg128 @ d1024, and how many at once."""
    name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
    if row["depth"]:
        name += f" @ d{row['depth']}"
    return name + (f", {row['batch']} at once" if row["batch"] > 1 else "")


def table(results):
    machine = next((line for line in results if line["section"] == "machine"), {})
    yield f"{machine.get('card') or 'no card'}; {machine.get('version', 'version unknown')}"
    yield ""
    yield "| shape | test | tokens/s | of read probe | of FLOP probe |"
    yield "|---|---|---|---|---|"
    for line in results:
        if line["section"] != "bench":
            continue
        row = line.get("row")
        if row is None:
            if line.get("status", "ok") != "ok":
                yield f"| {line['model']} | {line['what']} | {line['status']} | | |"
        elif row.get("status", "ok") != "ok":
            yield f"| {line['model']} | {test_name(row)} | {row['status']} | | |"
        else:
            rate = f"{row['avg_ts']:.1f} ± {row['stddev_ts']:.1f}"
            yield (f"| {line['model']} | {test_name(row)} | {rate} | "
                   f"{share(row, 'bytes_per_s')} | {share(row, 'flops_per_s')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="of scripts/gpu_check.sh")
    path = parser.parse_args().file
    try:
        results = lines_of(path)
    except (OSError, ValueError) as error:
        sys.exit(f"gpu_table: {path}: {error}; give a file that scripts/gpu_check.sh wrote")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
