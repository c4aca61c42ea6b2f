"""hyb beside llama.cpp on the CPU: the same shapes, the same threads, in turns.

Each pair is a model folder of hyb, after a colon what `--quantize` packs it to, and a GGUF file of
the same shape; checkpoints/make_random_model.py writes such folders and convert_hf_to_gguf.py of
llama.cpp turns them into files. A rate is the median over the rounds of each round's median, with
the least and the largest; the ratio is that of the rounds. Where threads wait for a core, the
figures say how each program waits: `--threads 1` is what then still says something.
"""

import argparse
import os
import shlex
import statistics

from measure.habits import hyb_json, in_turns, spread

COLUMNS = ("hyb", "GB", "peer", "GB", "test", "hyb t/s", "peer t/s", "hyb / peer",
           "hyb of its probe")
PROBES = {"tg": ("bytes_per_s", "probe_bytes_per_s", "read"),
          "pp": ("flops_per_s", "probe_flops_per_s", "FLOP")}


def add_options(parser):
    parser.add_argument("peer", help="llama-bench")
    parser.add_argument("pairs", nargs="+", type=parse_pair, metavar="FOLDER[:FORMAT]=FILE")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each program")
    parser.add_argument("--repetitions", type=int, default=3, help="of each test in a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt test")
    parser.add_argument("--generate", type=int, default=128, help="tokens of the other test")
    parser.add_argument("--depth", type=int, default=0, help="tokens before each test")
    parser.add_argument("--hyb-options", default="",
                        help="more options of hyb bench: '--random-weights 1' for a folder that "
                             "has config.json alone")
    parser.add_argument("--peer-options", nargs=argparse.REMAINDER, default=[],
                        help="all that follows goes to llama-bench")


def parse_pair(text):
    """(folder, format or "", file) of FOLDER[:FORMAT]=FILE."""
    ours, equals, file = text.partition("=")
    folder, _, quantize = ours.partition(":")
    if not equals or not folder or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not FOLDER=FILE or FOLDER:FORMAT=FILE")
    return folder, quantize, file


def bench_rows(command):
    """Rows of one run, by test: {"pp512": row, "tg128": row}. Both programs have the same keys."""
    rows = {}
    for row in hyb_json(command):
        if not row["samples_ts"]:
            raise SystemExit(f"{' '.join(command)}: {row.get('status', 'nothing measured')}")
        name = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
        rows[name] = row
    return rows


def commands_of(args, pair, repetitions):
    """(command of hyb, command of the peer)."""
    folder, quantize, file = pair
    sizes = ["-p", str(args.prompt), "-n", str(args.generate), "-d", str(args.depth),
             "-r", str(repetitions), "-o", "json"]
    ours = [args.hyb, "bench", folder, *sizes, "--threads", str(args.threads),
            *shlex.split(args.hyb_options)]
    if quantize:
        ours += ["--quantize", quantize]
    return ours, [args.peer, "-m", file, *sizes, "-t", str(args.threads), *args.peer_options]


def check_same_model(pair, ours, theirs):
    first, second = (next(iter(rows.values()))["model_n_params"] for rows in (ours, theirs))
    if abs(first - second) > first // 100:
        raise SystemExit(f"{pair[0]} has {first} parameters, {pair[2]} {second}: not one shape")


def rounds_of(args, pair):
    """[(rows of hyb, rows of the peer)], one per round."""
    # A first run of each is not counted: files come into the page cache, clocks go up.
    check_same_model(pair, *(bench_rows(command) for command in commands_of(args, pair, 1)))
    ours, theirs = commands_of(args, pair, args.repetitions)
    return list(zip(*in_turns(args.rounds, lambda: bench_rows(ours), lambda: bench_rows(theirs))))


def cells_of(pair, test, rounds):
    """One line of the table: one test of one pair."""
    ours = [statistics.median(first[test]["samples_ts"]) for first, _ in rounds]
    theirs = [statistics.median(second[test]["samples_ts"]) for _, second in rounds]
    ratios = [first / second for first, second in zip(ours, theirs)]
    rate, probe, name = PROBES[test[:2]]
    shares = [first[test][rate] / first[test][probe] for first, _ in rounds
              if first[test][rate] and first[test][probe]]
    share = f"{statistics.median(shares):.0%} ({name})" if shares else "-"
    folder, quantize, _ = pair
    first, second = rounds[0][0][test], rounds[0][1][test]
    label = os.path.basename(folder.rstrip("/")) + (f" {quantize}" if quantize else "")
    return (label, f"{first['model_size'] / 1e9:.2f}", second["model_type"],
            f"{second['model_size'] / 1e9:.2f}", test, spread(ours, 1),
            spread(theirs, 1), spread(ratios, 2), share)


def rows(args):
    for pair in args.pairs:
        rounds = rounds_of(args, pair)
        for test in rounds[0][0]:
            yield cells_of(pair, test, rounds)
