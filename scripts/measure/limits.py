"""A batch of mixed requests against the limits it was given.

Runs `hyb batch` over requests from a seed (short and long, alone and in groups that begin alike)
once per memory mode, in the order of the file so that memory is short, and looks at the process all
the time. The largest Pss must stay below packed weights + pools + what --beside allows (code,
tables, the text of requests); what the disk tier's file takes (st_blocks) and how long it is must
stay within the tier's size. Exit 1 when a limit is broken or there was too little data.
"""

import json
import pathlib
import random
import re
import tempfile

from measure.habits import MEGABYTE, Watch, hyb_json

COLUMNS = ("mode", "largest Pss", "allowed", "disk tier", "allowed", "reused", "looks", "seconds")
SAMPLES_MIN = 20
WORDS = (
    "the red box holds a coin and blue bag key Tom is in kitchen garden what where number green "
    "jar bell rope Anna likes rice old yellow tin drum map station 12 37 64 bread was warm road"
).split()


def add_options(parser):
    parser.add_argument("model", help="a model folder, or demo")
    parser.add_argument("--pool-memory", default="256MB")
    parser.add_argument("--beside", default="100MB", help="allowed beside weights and pools")
    parser.add_argument("--disk-tier", help="its size; modes that keep no prefixes go without")
    parser.add_argument("--modes", default="remap,flip,flat")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=2000, help="about, in the longest prompt")
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[],
                        help="one more for hyb batch: --option=--snapshots --option=int8")


def requests(count, seed, tokens_max):
    """Lines of a batch file: half of them alone, half in groups that share a document."""
    draw = random.Random(seed)

    def text(words):
        return " ".join(draw.choice(WORDS) for _ in range(int(words)))

    def long_text():
        return text(draw.uniform(0.1, 0.4) * tokens_max)

    documents = [long_text() for _ in range(max(1, count // 40))]
    for number in range(count):
        kind = draw.random()
        if kind < 0.5:
            prompt = f"{draw.choice(documents)} {text(draw.uniform(3, 30))}?"
        elif kind < 0.9:
            prompt = f"{number} {text(draw.uniform(3, 80))}?"
        else:
            prompt = f"{number} {long_text()}?"
        yield {"custom_id": str(number), "prompt": prompt, "n": 2 if draw.random() < 0.05 else 1,
               "max_tokens": int(draw.uniform(1, 24)), "ignore_eos": True,
               "temperature": 1.0 if draw.random() < 0.3 else 0.0, "seed": number}


def bytes_of(size):
    """What hyb understands by 256MB or 1GiB."""
    number, unit = re.fullmatch(r"([\d.]+)([KMGT]i?B?|B)?", size).groups()
    unit = (unit or "B").removesuffix("B")
    step = 1024 if len(unit) != 1 or unit == "" else 1000
    return int(float(number) * step ** ("KMGT".index(unit[0]) + 1 if unit else 0))


def run(args, mode, source, folder):
    """(what was seen, last_run of the job file) of one batch."""
    target = folder / f"out-{mode}.jsonl"
    command = [args.hyb, "batch", args.model, str(source), "-o", str(target),
               "--pool-memory", args.pool_memory, "--memory-mode", mode,
               "--parallel", str(args.parallel), "--order", "file", *args.option]
    tier = folder / "tier" if args.disk_tier and mode != "flat" else None
    if tier:
        command += ["--disk-tier", args.disk_tier, "--disk-tier-folder", str(tier)]
    watch = Watch(command, tier)
    return watch, json.loads(pathlib.Path(f"{target}.job").read_text())["last_run"]


def rows(args):
    fit = hyb_json([args.hyb, "fit", args.model, "--json", "--pool-memory", args.pool_memory])
    allowed = fit["weights_bytes"] + bytes_of(args.pool_memory) + bytes_of(args.beside)
    broken = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "in.jsonl"
        lines = requests(args.requests, args.seed, args.tokens)
        source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        for mode in args.modes.split(","):
            watch, last = run(args, mode, source, folder)
            has_tier = args.disk_tier and mode != "flat"
            tier_max = bytes_of(args.disk_tier) if has_tier else 0
            tier = max(watch.length, watch.taken)
            yield (mode, f"{watch.pss / MEGABYTE:.0f} MB", f"{allowed / MEGABYTE:.0f} MB",
                   f"{tier / MEGABYTE:.1f} MB", f"{tier_max / MEGABYTE:.1f} MB",
                   f"{100 * last['reused_tokens'] / last['prompt_tokens']:.1f} %",
                   str(watch.samples), f"{last['seconds']:.1f}")
            if watch.pss > allowed or tier > tier_max or watch.samples < SAMPLES_MIN:
                broken.append(mode)
    if broken:
        raise SystemExit(f"broken, or not seen: {', '.join(broken)}")
