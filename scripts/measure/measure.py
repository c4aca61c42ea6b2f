#!/usr/bin/env python3
"""Measures what the READMEs claim; every subcommand prints one table in Markdown.

    scripts/measure/measure.py start build/hyb FOLDER
    scripts/measure/measure.py peer build/hyb LLAMA_BENCH FOLDER=FILE FOLDER:q4=FILE ...
    scripts/measure/measure.py limits build/hyb MODEL --pool-memory 256MB --disk-tier 64MB
    scripts/measure/measure.py keys build/hyb MODEL
    scripts/measure/measure.py snapshots build/hyb

Run it on a machine that does nothing else. What is timed runs in rounds, programs in turns; a
figure is the median of the rounds, then the least and the largest. Exit 1: a limit is broken.
"""

import argparse
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from measure import keys, limits, peer, snapshots, start
from measure.habits import print_table


def main():
    raw = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(description=__doc__, **raw)
    subcommands = parser.add_subparsers(dest="what", required=True)
    modules = {"start": start, "peer": peer, "limits": limits, "keys": keys, "snapshots": snapshots}
    for name, module in modules.items():
        about = module.__doc__
        one = subcommands.add_parser(name, description=about, help=about.split("\n")[0], **raw)
        one.add_argument("hyb", help="the binary")
        module.add_options(one)
    args, args.more = parser.parse_known_args()
    if args.more and args.what != "keys":
        parser.error(f"unknown: {' '.join(args.more)}")
    print_table(modules[args.what].COLUMNS, modules[args.what].rows(args))


if __name__ == "__main__":
    main()
