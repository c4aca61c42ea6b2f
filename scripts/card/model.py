#!/usr/bin/env python3
"""Predicts the speed of a model on a card from the launches of its steps. It measures nothing.

    scripts/card/model.py --card h200 --preset qwen3-next-80b-a3b --weights fp8 --batch 1 --json
    scripts/card/model.py --preset granite-4.0-h-tiny --prefill 32768 --slowest 10
    scripts/card/model.py --preset qwen3-next-80b-a3b --weights fp8 --drafts 4+2 # and a branch of 2
    scripts/card/model.py --table          # every workload of tests/gpu/predictions.tsv
    scripts/card/model.py --check          # exit status 1 where one is over 3 % below that file
    scripts/card/model.py --update         # writes it
    scripts/card/model.py --validate       # the model's constants against published kernels
    scripts/card/model.py --measured FILE  # rows of day.py beside predictions for their card

The launches come from the program card_steps of a build with -DHYB_CUDA=EMULATED, the instructions
of kernels from kernels/cuda/sass.tsv, their registers from kernels/cuda/ptxas.tsv. Neither a card
nor a CUDA toolkit nor memory for the model is needed.

A launch takes its overhead and the longest of: a floor of latency; its bytes at the card's copy
rate, or at what its blocks can have in flight; the instructions of its hottest loop at the rate of
its resident warps; its matrix instructions; its cycles of shared memory. The last three are those
of the processor that has the most blocks, so that tails count. What launches do not say: bank
conflicts, hits in the L2 cache beyond activations, uneven routing of experts.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import subprocess
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/

from card import sass

TOP = pathlib.Path(__file__).resolve().parents[2]
PREDICTIONS = TOP / "tests/gpu/predictions.tsv"
COLUMNS = ["preset", "weights", "workload", "tokens_per_s", "share_of_floor", "nodes"]
FALL_MAX = 0.03  # what --check lets pass


@dataclasses.dataclass(frozen=True)
class Card:
    processors: int  # streaming multiprocessors
    clock: float     # Hz, boost
    copy: float      # bytes/s that a copy reaches
    dense: float     # bf16 FLOP/s that library products reach
    mma: float       # bf16 multiply-adds of mma.sync per cycle and processor
    shared: int      # bytes of a processor
    warps: int       # resident at most on a processor
    registers: int = 65536


# Processors, clocks, shared memory, warps and peaks are of NVIDIA's data sheets and whitepapers:
# 989 (H100, H200), 312 (A100), 165 (RTX 4090) TFLOP/s of bf16 with f32 sums; 3.35, 4.8, 2.04 and
# 1.01 TB/s. Copy rates of H100 and H200 and their 790 TFLOP/s are what others measured (posts of
# Hazy Research and of vLLM); A100 and 4090 are given the same shares of their peaks. mma.sync
# reaches 62 % of a Hopper's peak (FlashAttention-3's paper), and all of that of the others.
CARDS = {
    "h100": Card(132, 1.755e9, 3.0e12, 790e12, 1270, 228 << 10, 64),
    "h200": Card(132, 1.755e9, 4.3e12, 790e12, 1270, 228 << 10, 64),
    "a100": Card(108, 1.41e9, 1.75e12, 255e12, 1024, 164 << 10, 64),
    "4090": Card(128, 2.52e9, 0.92e12, 140e12, 256, 100 << 10, 48),
}

# Constants of the model. --validate prints what they make of published kernels.
NODE = 1.3e-6         # s between two nodes of a graph (Hazy Research's post on megakernels)
NODE_EARLY = 0.7e-6   # s, where the second starts early (programmatic dependent launch)
LATENCY = 1.2e-6      # s, the least that a kernel takes: loads that depend on loads, and a store
STEP = 15e-6          # s of the host between two decode steps
STREAM = 0.9          # of a copy's rate: what a kernel reaches
LOAD_SECONDS = 0.7e-6  # of one load when the memory is busy
FLIGHT_BYTES = 64     # per cycle that a processor gets of its L2 cache (A100's whitepaper)
ISSUE = 3.2           # instructions per cycle and processor: 4, less a fifth for waits
WARP_ISSUE = 0.35     # instructions per cycle of a warp, whose next one often waits for the last
BODY = 0.5            # of a kernel's instructions outside of loops: the rest are other cases
FLOPS_OF_MMA = 4096   # m16n8k16
DECODE_POSITION = 1024
ACCEPTED = 3.4        # tokens of a verify step: SGLang's acceptance length of Qwen3-Next's MTP
LIBRARY_TILE = 128

PRESETS = [("granite-4.0-h-tiny", "bf16"), ("granite-4.0-h-tiny", "bits12"),
           ("nemotron-3-nano-30b-a3b", "bf16"), ("nemotron-3-nano-30b-a3b", "bits12"),
           ("nemotron-3-nano-30b-a3b", "fp8"), ("qwen3-next-80b-a3b", "fp8"),
           ("qwen3.5-35b-a3b", "fp8")]
WORKLOADS = [*(f"decode:{rows}" for rows in (1, 8, 64, 256)), "prefill:8192", "prefill:32768"]
# Of a draft layer, for one sequence: three drafts; and a tree of 8 rows, which is the token, four
# drafts, and a branch that leaves them after the first: the token, that draft, another one.
DRAFTS = {("qwen3-next-80b-a3b", "fp8"): ["drafts:1:3", "drafts:1:4+2"]}


@dataclasses.dataclass
class Work:
    """What a launch does besides taking its place."""
    memory: float = 0.0        # bytes to and from memory
    instructions: float = 0.0  # of warps
    tensor: float = 0.0        # matrix instructions of warps
    shared: float = 0.0        # cycles of shared memory
    blocks: float = 0.0        # that have work; 0: all
    flight: float = 0.0        # bytes that a block has under way at a time; 0: as its loop has

    def add_loop(self, loop, turns):
        self.instructions += turns * loop["loop"]
        self.tensor += turns * loop["tensor"]
        self.shared += turns * loop["shared"]


def experts_touched(experts, active, tokens):
    """Of uniform routing, on average."""
    return experts * (1 - (1 - active / experts) ** tokens)


def fits_of(card, threads, registers, shared_bytes):
    """Blocks that a processor holds at a time."""
    by_registers = card.registers // max(1, registers * threads)
    by_shared = card.shared // (shared_bytes + 1024)
    return max(1, min(by_registers, by_shared, card.warps * 32 // threads, 32))


def kernel_seconds(card, work, blocks, threads, fits, flight):
    """Without overhead, and what bounds it. flight: bytes that a block has under way, where the
    work does not say."""
    blocks = max(1.0, work.blocks or blocks)
    used = min(blocks, card.processors)
    each = math.ceil(blocks / card.processors)  # of the processor that has the most
    tail = each * used / blocks
    resident = min(fits, each)
    in_flight = min(resident * (work.flight or flight) / LOAD_SECONDS, FLIGHT_BYTES * card.clock)
    issue = min(ISSUE, resident * math.ceil(threads / 32) * WARP_ISSUE)
    per_cycle = tail / (used * card.clock)
    bounds = {"latency": LATENCY,
              "memory": work.memory / min(STREAM * card.copy, used * in_flight),
              "issue": work.instructions / issue * per_cycle,
              "tensor": work.tensor * FLOPS_OF_MMA / 2 / card.mma * per_cycle,
              "shared": work.shared * per_cycle}
    bound = max(bounds, key=bounds.get)
    return bounds[bound], bound


def library_seconds(card, tokens, outputs, inner):
    """A product by cuBLASLt in bf16: whole waves of tiles, or its operands' bytes."""
    # Where tiles are few the library divides the inner dimension, so that the tail has an end.
    tiles = math.ceil(tokens / LIBRARY_TILE) * math.ceil(outputs / LIBRARY_TILE)
    tail = math.ceil(tiles / card.processors) * card.processors / tiles
    padded = max(tokens, LIBRARY_TILE) * max(outputs, LIBRARY_TILE) * inner
    numbers = tokens * inner + outputs * inner + tokens * outputs
    bounds = {"latency": LATENCY,
              "memory": 2 * numbers / (STREAM * card.copy),
              "tensor": 2 * padded * min(tail, 4) / card.dense}
    bound = max(bounds, key=bounds.get)
    return bounds[bound], bound


# ---- what kernels do -----------------------------------------------------------------------------


def tile_of(name):
    """(tokens, outputs) of a Tile<...> among the template's arguments."""
    found = re.search(r"Tile<(\d+), (\d+), (\d+), (\d+)", name)
    if not found:
        return None
    rows, columns, tiles_m, tiles_n = map(int, found.groups())
    return rows * tiles_m * 16, columns * tiles_n * 8


def tokens_of_tile(name):
    """Tokens that one pass over a weight takes, full or not."""
    if tile := tile_of(name):
        return tile[0]
    found = re.match(r"(?:skinny|coded)_kernel<(?:\(WeightCode\)\d+, |\w+::\w+, )?(\d+),", name)
    if found:
        return 8 * int(found.group(1))
    return 16 if name.startswith("moe_split_logits") else 8


# Of the kernels that are given all weights of a layer: those that each reads.
ROLES = {"small_batch_front": r"router|latent_in|shared_expert_gate",
         "small_batch_inner": r"up$",
         "small_batch_sum": r"down$|latent_out",
         "moe_split_logits": r"router"}


def weights_of(name, launch):
    """Each once: codes and their scales are one weight."""
    if name.startswith("rms_norm"):  # it reads none: padding of its parameters may look like one
        return []
    found = {(one["role"], one["bytes"], one["rows"]): one for one in launch.get("weights", [])}
    for kernel, roles in ROLES.items():
        if name.startswith(kernel):
            return [one for one in found.values() if re.search(roles, one["role"])]
    return list(found.values())


def tiles_of(rows, experts, tokens):
    """Tiles of `tokens` rows that all rows take: whole ones of a matrix, of experts the average of
    uniform routing."""
    if experts == 1:
        return math.ceil(rows / tokens)
    mean = rows / experts
    if mean > 8 * tokens:  # of each expert a last tile is half full
        return experts * (mean / tokens + 0.5)
    # The sum over n of the chance that an expert has more than n tiles of rows (Poisson).
    chance, below, tiles = math.exp(-mean), 0.0, 0.0
    for count in range(math.ceil(mean + 10 * math.sqrt(mean) + 10) + 1):
        below += chance
        tiles += 1 - below if count % tokens == 0 else 0.0
        chance *= mean / (count + 1)
    return experts * tiles


def weight_work(name, loop, launch, step, weights):
    work = Work()
    tile = tile_of(name)
    for one in weights:
        is_experts = one["experts"] > 1
        is_head = one["role"] in ("head", "embed")
        rows = step["head_rows"] if is_head else step["tokens"]
        rows *= step["active"] if is_experts else 1
        touched = (experts_touched(one["experts"], step["active"], step["tokens"])
                   if is_experts else 1)
        bytes_each = one["bytes"] / one["experts"]
        work.memory += touched * bytes_each + 2 * rows * (one["rows"] + one["columns"])
        passes = tiles_of(rows, one["experts"], tokens_of_tile(name))
        if is_experts and tile:
            work.blocks = passes * math.ceil(one["rows"] / tile[1])
        if loop["tensor"] > 0:
            outputs = math.ceil(one["rows"] / tile[1]) * tile[1] if tile else one["rows"]
            flops = 2 * passes * tokens_of_tile(name) * outputs * one["columns"]
            work.add_loop(loop, flops / (loop["tensor"] * FLOPS_OF_MMA))
        else:
            times = rows if "plain" in name else touched
            work.add_loop(loop, times * bytes_each / max(loop["streamed"], 1))
        if name.startswith(("gemv", "skinny", "small_batch_front")) and loop["side_bytes"]:
            turns = launch["blocks"] * 2 * rows * one["columns"] / loop["side_bytes"]
            work.instructions += turns * loop["side"]
    return work


def attention_work(name, loop, launch, step):
    if "merge" in name:
        return Work()
    head = re.search(r"Shape<(\d+)", name)
    kv_width = step["kv_layer_bytes_per_token"] / 4  # keys and values of bf16
    heads = step["attention_width"] / int(head.group(1)) if head else 1
    kv_heads = kv_width / int(head.group(1)) if head else 1
    rows = heads / kv_heads  # that share keys
    padding = math.ceil(rows / 16) * 16 / rows if head and step["decode"] else 1
    pairs = (step["tokens"] * step["position"] if step["decode"]
             else step["tokens"] * (step["position"] + step["tokens"] / 2))
    rows_bytes = 8 * step["tokens"] * step["attention_width"]
    work = Work(memory=step["sequences"] * (step["position"] + step["tokens"] / step["sequences"])
                * step["kv_layer_bytes_per_token"] + rows_bytes)
    if loop["tensor"]:
        flops = 4 * step["attention_width"] * pairs * padding
        work.add_loop(loop, flops / (loop["tensor"] * FLOPS_OF_MMA))
    return work


def chunk_work(name, loop, launch, step):
    """Recurrences in chunks of 64 tokens: products, and all other instructions once a chunk."""
    chunks = math.ceil(step["tokens"] / 64)
    numbers = [int(one) for one in re.findall(r"\d+", name)]
    warps = launch["threads"] // 32
    state_flops = step["token_flops"] * step["tokens"]
    chunk_flops = step["chunk_flops"] * 64 * step["tokens"]
    if name.startswith("ssd_"):
        heads = step["state_layer_bytes"] / 4 / math.prod(numbers[:2] or [1])
        flops = state_flops / 2 if "segment" in name else state_flops + chunk_flops
        bodies = chunks * heads
    elif "solve" in name:
        flops, bodies = chunk_flops, launch["blocks"]
    else:
        flops, bodies = state_flops, chunks * launch["blocks"]
    work = Work(memory=step["tokens"] * step["width"] * 8)
    if loop["tensor"]:
        work.add_loop(loop, flops / (loop["tensor"] * FLOPS_OF_MMA))
        work.instructions += BODY * bodies * warps * (loop["instructions"] - loop["loop"])
    if "channels" in name:  # pairs of near tokens: 36 instructions for four channels of one
        work.instructions += launch["blocks"] * warps * 136 / 32 * numbers[0] / 4 * 36
    return work


def scan_work(loop, launch, step):
    """A recurrence token by token: of drafts, after those of the step before that were right."""
    state, spans = step["state_layer_bytes"], step["spans"]  # each span reads it, some write it
    rows = step["tokens"] + spans * (ACCEPTED - 1)
    blocks = launch["blocks"] / 2  # of two pieces of each span the second has nothing to do
    body = BODY * loop["instructions"] * blocks * launch["threads"] / 32
    return Work(memory=(spans + step["sequences"]) * state, blocks=blocks,
                instructions=body + rows * step["token_flops"] / 2 / 32,
                flight=spans * state / blocks)


def other_work(name, loop, launch, step):
    if name.startswith(("mamba_step", "delta_step", "s6_kernel")):
        later = 34 * (step["tokens"] / step["sequences"] - 1)  # instructions of s6 for a token
        body = BODY * (loop["instructions"] + later) * launch["blocks"] * launch["threads"] / 32
        state = step["sequences"] * step["state_layer_bytes"]  # all of it in registers at once
        return Work(memory=2 * state, instructions=body, flight=state / launch["blocks"])
    visits = step["tokens"] * max(1, step["active"])
    if name.startswith("sort_visits"):
        return Work(memory=12 * visits, instructions=2 * visits / 32 * loop["loop"])
    if name.startswith("sum_visits"):
        return Work(memory=2 * step["width"] * (visits + 2 * step["tokens"]))
    if name == "sample_draw_kernel":
        return Work()  # where tokens are the likeliest ones it finds its rows answered
    if name == "sample_first_kernel":
        return Work(memory=4 * step["vocab"] * step["head_rows"])
    return Work(memory=6 * step["tokens"] * step["width"])


def work_of(name, loop, launch, step):
    weights = weights_of(name, launch)
    if weights and weights[0]["role"] == "embed" and ("gather" in name or "embed" in name):
        return Work(memory=4 * step["tokens"] * weights[0]["columns"])
    if weights:
        return weight_work(name, loop, launch, step, weights)
    if name.startswith(("attention", "latent_attention")):
        return attention_work(name, loop, launch, step)
    if name.startswith(("ssd_segment", "ssd_chunk", "delta_rule_chunk", "delta_rule_solve")):
        return chunk_work(name, loop, launch, step)
    if name.startswith(("ssd_scan", "delta_rule_scan")) and step["kind"] == "verify":
        return scan_work(loop, launch, step)
    return other_work(name, loop, launch, step)


class Model:
    """A card, and the kernels that run on it. `tables` has their sass.tsv and ptxas.tsv."""

    def __init__(self, card, tables=TOP / "kernels/cuda"):
        self.card = CARDS[card]
        self.loops = sass.read_table(tables / "sass.tsv")[0]
        header, *lines = [line.split("\t")
                          for line in (tables / "ptxas.tsv").read_text().splitlines()]
        at = header.index("registers_90")
        self.registers = {line[1]: int(line[at]) for line in lines}

    def seconds(self, launch, step):
        """(time, name, what bounds it) of a launch."""
        if "copy" in launch:
            return NODE + 2 * launch["copy"] / self.card.copy, "copy", "memory"
        if "product" in launch:
            time, bound = library_seconds(self.card, *launch["product"])
            return NODE + time, "library product", bound
        name = launch["kernel"]
        for table, program in ((self.loops, "sass"), (self.registers, "ptxas")):
            if name not in table:
                sys.exit(f"card_model: {name}: not in kernels/cuda/{program}.tsv; "
                         f"run scripts/card/{program}.py")
        loop, threads = self.loops[name], launch["threads"]
        work = work_of(name, loop, launch, step)
        fits = fits_of(self.card, threads, self.registers[name], launch["shared"])
        flight = max(launch["shared"], threads / 32 * max(loop["streamed"], 512))
        time, bound = kernel_seconds(self.card, work, launch["blocks"], threads, fits, flight)
        return (NODE_EARLY if launch["pdl"] else NODE) + time, name, bound

    def floor(self, step):
        return max(step["floor_bytes"] / self.card.copy, step["flops"] / self.card.dense)


# ---- steps ---------------------------------------------------------------------------------------


class Recorder:
    """Runs card_steps, the program that records launches."""

    def __init__(self, program):
        self.program = program

    def record(self, preset, weights, steps):
        """[(step, launches)], in the order of `steps`."""
        run = subprocess.run([self.program, TOP / "models/presets" / preset, weights, *steps],
                             capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"card_model: {self.program}: {run.stderr.strip() or run.returncode}")
        found = []
        for line in map(json.loads, run.stdout.splitlines()):
            if "step" in line:
                found.append((described(line), []))
            else:
                found[-1][1].append(line)
        return found


def described(line):
    """A step's line and what follows from its kind."""
    kind = line["step"].split(":")[0]
    return line | {
        "kind": kind, "decode": kind in ("decode", "draft"),
        "head_rows": line["tokens"] if kind == "verify" else line["sequences"]}


def program_of(wanted):
    found = wanted or next((path for path in sorted(TOP.glob("build*/card_steps"))), None)
    if found is None:
        sys.exit("no card_steps: scripts/build.sh BUILD card_steps -- -DHYB_CUDA=EMULATED")
    return found


def prefill_steps(tokens, chunk):
    """Some of the chunks, and how many of all each stands for: time grows evenly with the
    position."""
    chunks = math.ceil(tokens / chunk)
    shown = sorted({round(i * (chunks - 1) / 3) for i in range(4)})
    return [f"prefill:{min(chunk, tokens)}:{i * chunk}" for i in shown], chunks / len(shown)


def step_of(workload):
    """decode:ROWS[:POSITION] and prefill:TOKENS as card_steps takes them."""
    kind, count, *position = workload.split(":")
    at = position[0] if position else DECODE_POSITION if kind == "decode" else 0
    return f"{kind}:{count}:{at}"


def predict(model, recorder, preset, weights, workloads):
    """Of each workload a prediction and the timed launches of its steps."""
    kinds = [(kind, int(count)) for kind, count, *_ in (one.split(":") for one in workloads)]
    whole = recorder.record(preset, weights, [step_of(one) for one in workloads])
    chunks = {}
    for (kind, count), (step, _) in zip(kinds, whole):
        if kind == "prefill":
            chunks[count] = prefill_steps(count, min(count, step["prefill_chunk"]))
    wanted = sorted({text for shown, _ in chunks.values() for text in shown})
    recorded = dict(zip(wanted, recorder.record(preset, weights, wanted))) if wanted else {}
    for workload, (kind, count), (step, launches) in zip(workloads, kinds, whole):
        steps, times, host = [(step, launches)], 1, STEP
        if kind == "prefill":
            shown, times = chunks[count]
            steps, host = [recorded[text] for text in shown], 0.0
        timed = [model.seconds(launch, of) for of, all_of in steps for launch in all_of]
        seconds = times * sum(one[0] for one in timed) + host
        yield {"preset": preset, "weights": weights, "workload": workload,
               "tokens_per_s": round(count / seconds, 1),
               "share_of_floor": round(model.floor(step) / seconds, 3),
               "nodes": len(steps[-1][1])}, timed


def predict_drafts(model, recorder, preset, weights, workloads):
    """The same of drafts, where a step gives ACCEPTED tokens; with the seconds of its two parts,
    each of which the host waits for."""
    texts = []
    for workload in workloads:
        _, rows, drafts = workload.split(":")
        trunk, *branch = drafts.split("+")
        texts += [f"draft:{rows}:{DECODE_POSITION}:{trunk}",
                  ":".join(["verify", rows, str(DECODE_POSITION), trunk, *branch])]
    whole = recorder.record(preset, weights, texts)
    for workload, (draft, passes), (step, launches) in zip(workloads, whole[::2], whole[1::2]):
        parts = [[model.seconds(launch, of) for launch in all_of]
                 for of, all_of in ((draft, passes), (step, launches))]
        drafting, verifying = (sum(one[0] for one in part) + STEP for part in parts)
        floor = model.floor(draft) + model.floor(step)
        yield {"preset": preset, "weights": weights, "workload": workload,
               "tokens_per_s": round(step["sequences"] * ACCEPTED / (drafting + verifying), 1),
               "share_of_floor": round(floor / (drafting + verifying), 3),
               "nodes": len(passes) + len(launches)}, sum(parts, []), (drafting, verifying)


def slowest(timed, count):
    """Lines of the kernels that take the most time together."""
    groups = {}
    for seconds, name, bound in timed:
        group = groups.setdefault((name, bound), [0, 0.0])
        group[0] += 1
        group[1] += seconds
    whole = sum(one[0] for one in timed)
    order = sorted(groups.items(), key=lambda one: -one[1][1])
    for (name, bound), (nodes, seconds) in order[:count]:
        yield (f"{seconds / whole:6.1%} {nodes:5} x {seconds / nodes * 1e6:9.1f} us  {bound:8}"
               f"{name}")


# ---- predictions and their file ------------------------------------------------------------------


def all_predictions(model, recorder):
    for preset, weights in PRESETS:
        for row, _ in predict(model, recorder, preset, weights, WORKLOADS):
            yield row
    for (preset, weights), workloads in DRAFTS.items():
        for row, *_ in predict_drafts(model, recorder, preset, weights, workloads):
            yield row


def key_of(row):
    return row["preset"], row["weights"], row["workload"]


def text_of(rows):
    return "".join("\t".join(map(str, line)) + "\n"
                   for line in [COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])


def read_predictions(path):
    header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
    rows = [dict(zip(header, line)) for line in lines]
    return {key_of(row): float(row["tokens_per_s"]) for row in rows}


def falls(rows, before):
    """What --check says."""
    for row in rows:
        old, new = before.get(key_of(row)), row["tokens_per_s"]
        where = " ".join(key_of(row))
        if old is None:
            yield f"{where}: not in {PREDICTIONS.name}; run scripts/card/model.py --update"
        elif new < old * (1 - FALL_MAX):
            yield f"{where}: {new} tokens/s are predicted, {old} before: {new / old - 1:+.1%}"


def check(rows):
    found = list(falls(rows, read_predictions(PREDICTIONS)))
    for line in found:
        print(line)
    for name in sass.stale():
        print(f"note: {name} has changed since kernels/cuda/sass.tsv was made", file=sys.stderr)
    print(f"{len(rows)} predictions, {len(found)} over {FALL_MAX:.0%} lower than before")
    return 1 if found else 0


WEIGHTS = {"BF16": "bf16", "FP8": "fp8", "BF16 in 12 bits": "bits12"}  # as hyb bench names them


def card_of(name):
    """h200 of "NVIDIA H200"; None of one that CARDS lacks."""
    return next((card for card in CARDS if card in name.lower()), None)


def measured_rows(lines):
    """(row, card, preset, weights, workload) of what the model can predict: decode steps, and
    prompts from the start of a sequence."""
    for row in map(json.loads, lines):
        preset = pathlib.Path(row.get("model_filename", "")).name
        weights = WEIGHTS.get(row.get("model_type", "").partition(" ")[2])
        is_prompt = row.get("n_prompt", 0) > 0
        if (row.get("status") != "ok" or row.get("device") != "cuda" or not weights
                or not (TOP / "models/presets" / preset).is_dir()
                or is_prompt and (row["n_gen"] > 0 or row["depth"] > 0)):
            continue
        workload = (f"prefill:{row['n_prompt']}" if is_prompt
                    else f"decode:{row['batch']}:{row['depth']}")
        yield row, card_of(row["gpu_info"]), preset, weights, workload


def print_measured(path, wanted, tables, recorder):
    """Rows of hyb bench beside predictions for the card that each names, or that is wanted."""
    groups = {}
    for row, card, preset, weights, workload in measured_rows(path.read_text().splitlines()):
        if card := wanted or card:
            groups.setdefault((card, preset, weights), []).append((row, workload))
        else:
            print(f"note: no card of the model is named {row['gpu_info']!r}; give --card",
                  file=sys.stderr)
    print("| stage | card | preset | weights | workload | measured tokens/s | predicted | "
          "measured/predicted |\n|" + "---|" * 8)
    for (card, preset, weights), rows in groups.items():
        of = Model(card, tables), recorder, preset, weights
        for (row, workload), (found, _) in zip(rows, predict(*of, [one for _, one in rows])):
            rate = found["tokens_per_s"]
            print(f"| {row.get('stage', '')} | {card} | {preset} | {weights} | {workload} | "
                  f"{row['avg_ts']:.1f} | {rate} | {row['avg_ts'] / rate:.2f} |")


# ---- published kernels ---------------------------------------------------------------------------

# (kernel, card, published us, bytes, FLOPs by mma.sync, FLOPs by a library's wgmma, source). States
# are read and written. Theirs are other kernels than ours: what is checked is the card's part.
STATE = 64 * 128 * 2 * 2  # a head of 64 x 128 in float16, read and written
DELTA = 128 * 128 * 2 * 2  # a head of 128 x 128 in bf16, read and written
ATTENTION = 4 * 16384**2 / 2 * 2048  # FLOPs of 16 heads of 128 over 16k tokens
PUBLISHED = [
    *((f"selective_state_update, {heads} heads", "h100", us, heads * STATE, 0, 0, "vllm#43083")
      for heads, us in ((8, 2.16), (64, 3.10), (1024, 11.15), (8192, 104.5))),
    *((f"delta rule decode, 16 heads, batch {batch}", "h200", us, batch * 16 * DELTA, 0, 0,
       "vllm#31722") for batch, us in ((32, 20.3), (128, 59.0), (1024, 420.0))),
    ("delta rule decode, 32 heads, batch 1", "h100", 3.62, 32 * DELTA, 0, 0, "flashinfer#2498"),
    ("attention, causal 16k: FlashAttention-2", "h100", ATTENTION / 350e6, 0, ATTENTION, 0,
     "FlashAttention-3"),
    ("attention, causal 16k: FlashAttention-3", "h100", ATTENTION / 620e6, 0, 0, ATTENTION,
     "FlashAttention-3"),
    ("Llama-3.2-1B bf16, a step in one kernel", "h100", 1000.0, 1.236e9 * 2, 0, 0,
     "Hazy Research"),
    ("Llama-3-8B float16, a step in one kernel", "4090", 1e6 / 61, 7.5e9 * 2, 0, 0, "calm"),
    ("Mixtral-8x7B fp8, a step in one kernel", "h100", 1e6 / 200, 12.75e9, 0, 0, "calm"),
]


def published_seconds(card, memory, mma_flops, library_flops):
    bounds = [LATENCY, memory / (STREAM * card.copy), library_flops / card.dense,
              mma_flops / (2 * card.mma * card.processors * card.clock)]
    return NODE + max(bounds)


def validate():
    print("| kernel | card | published us | predicted us | error | source |\n|" + "---|" * 6)
    for kernel, card, us, memory, mma, library, source in PUBLISHED:
        predicted = published_seconds(CARDS[card], memory, mma, library) * 1e6
        print(f"| {kernel} | {card} | {us:.2f} | {predicted:.2f} | {predicted / us - 1:+.0%} | "
              f"{source} |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--table", action="store_true", help="all workloads, as a table")
    modes.add_argument("--check", action="store_true", help="compare them with the file")
    modes.add_argument("--update", action="store_true", help="write the file")
    modes.add_argument("--validate", action="store_true", help="published kernels")
    modes.add_argument("--measured", type=pathlib.Path, metavar="FILE",
                       help="rows of day.py, or of hyb bench -o jsonl")
    parser.add_argument("--card", choices=CARDS,
                        help="default: h200; of --measured: the one that a row names")
    parser.add_argument("--preset", help="a folder of models/presets")
    parser.add_argument("--weights", choices=["bf16", "fp8", "bits12"], default="bf16",
                        help="bits12: bf16 in 12 bits, as --lossless on keeps it")
    parser.add_argument("--batch", type=int, default=1, help="rows of a decode step")
    parser.add_argument("--prefill", type=int, metavar="TOKENS", help="instead of a decode step")
    parser.add_argument("--drafts", metavar="N[+BRANCH]",
                        help="of the draft layer, for every row, instead of a decode step")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="kernels")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=pathlib.Path, help="card_steps (default: any build's)")
    parser.add_argument("--tables", type=pathlib.Path, default=TOP / "kernels/cuda",
                        help="folder of sass.tsv and ptxas.tsv, as of another commit")
    options = parser.parse_args()
    if not (options.preset or options.table or options.check or options.update or options.validate
            or options.measured):
        parser.error("give --preset, or one of --table, --check, --update, --validate, --measured")
    return options


def print_one(options, model, recorder):
    workload = f"prefill:{options.prefill}" if options.prefill else f"decode:{options.batch}"
    of = model, recorder, options.preset, options.weights
    seconds = ()
    if options.drafts:
        workload = f"drafts:{options.batch}:{options.drafts}"
        row, timed, seconds = next(predict_drafts(*of, [workload]))
    else:
        row, timed = next(predict(*of, [workload]))
    if options.json:
        print(json.dumps({"prediction": True, "card": options.card} | row))
    else:
        print(f"predicted: {row['tokens_per_s']} tokens/s, {row['share_of_floor']:.0%} of the "
              f"floor, {row['nodes']} nodes")
    if seconds and not options.json:
        print(f"drafting {seconds[0] * 1e6:.0f} us, verifying {seconds[1] * 1e6:.0f} us, each with "
              f"{STEP * 1e6:.0f} of the host; {ACCEPTED} tokens a step")
    for line in slowest(timed, options.slowest):
        print(line)


def main():
    options = arguments()
    if options.validate:
        validate()
        return 0
    if options.measured:
        recorder = Recorder(program_of(options.steps))
        print_measured(options.measured, options.card, options.tables, recorder)
        return 0
    options.card = options.card or "h200"
    model, recorder = Model(options.card, options.tables), Recorder(program_of(options.steps))
    if options.preset:
        print_one(options, model, recorder)
        return 0
    rows = list(all_predictions(model, recorder))
    if options.check:
        return check(rows)
    if options.update:
        PREDICTIONS.parent.mkdir(exist_ok=True)
        PREDICTIONS.write_text(text_of(rows))
    else:
        print(text_of(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
