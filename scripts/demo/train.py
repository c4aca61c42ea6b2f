#!/usr/bin/env python3
"""Trains the demo model on the synthetic corpus and exports it as a Hugging Face folder.

  train.py --work DIR --minutes 75           trains, resuming from DIR/checkpoint.pt
  train.py --work DIR --export models/demo   writes the best model so far, checked

Other sizes take the demo's tokenizer: the smaller model that drafts for it, and a larger one, of
eight million parameters, which formats of weights are compared on:

  train.py --size drafter --work DIR --minutes 20 --processes 1
  train.py --size drafter --work DIR --export tests/demo/drafter
  train.py --size large --work DIR --minutes 40 --processes 1

The schedule follows the clock: warm-up, a constant rate, and from a quarter of the time a linear
fall to zero at the last minute, whatever the speed; first mostly drills, at the end more long rows.
Matrices learn with Muon (orthogonalised momentum), the rest with AdamW. SIGTERM saves and stops.
The export is compared with transformers: logits in f32 and the rendered template.
"""

import argparse
import json
import pathlib
import signal
import sys
import time

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import torch
from tokenizers import Tokenizer

from demo.corpus import SCORED, Corpus, held_out
from demo.crew import HALF, Crew, tokens_per_step
from demo.model import CHUNK, SIZES, DemoModel, shape_of
from demo.text import ChatEncoder, train_tokenizer

DEMO = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
VOCABULARY = 1200
# (until this part of the time, share)
LONG_SHARES = [(0.3, 0.0), (0.7, 0.12), (1.0, 0.25)]  # of the steps
DRILL_SHARES = [(0.25, 0.75), (0.6, 0.3), (1.0, 0.1)]  # of the short chats
WARM_UP, FALL_FROM = 0.01, 0.25  # of the time
MUON_RATE, ADAM_RATE = 0.015, 0.002
CHECK_EVERY = 240.0  # seconds


def orthogonalise(update, steps=5):
    """Newton-Schulz iteration towards the nearest orthogonal matrices, over a stack [k,m,n]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = update.shape[-2] <= update.shape[-1]
    x = (update if wide else update.mT).to(torch.bfloat16 if HALF else torch.float32)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x if wide else x.mT).float()


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised matrix steps; parameters of one shape go in one stack."""

    def __init__(self, parameters, momentum=0.95, decay=0.01):
        super().__init__(list(parameters), {"lr": MUON_RATE, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        shapes = {}
        for parameter in group["params"]:
            moving = self.state[parameter].setdefault("moving", torch.zeros_like(parameter))
            moving.lerp_(parameter.grad, 1 - group["momentum"])
            update = parameter.grad.lerp(moving, group["momentum"])
            shapes.setdefault(parameter.shape[-2:], []).append((parameter, update))
        for (rows, columns), entries in shapes.items():
            stack = torch.cat([update.reshape(-1, rows, columns) for _, update in entries])
            steps = orthogonalise(stack) * max(1.0, rows / columns) ** 0.5
            done = 0
            for parameter, update in entries:
                count = update.numel() // (rows * columns)
                parameter.mul_(1 - group["lr"] * group["decay"])
                parameter.sub_(steps[done : done + count].view_as(parameter), alpha=group["lr"])
                done += count


def is_matrix(name, parameter):
    return parameter.ndim >= 2 and not any(
        part in name for part in ("embed_tokens", "router", "conv1d")
    )


def rate(progress):
    """Learning rate factor at this part of the time."""
    if progress < WARM_UP:
        return 0.05 + 0.95 * progress / WARM_UP
    return 1.0 if progress < FALL_FROM else max(0.0, (1 - progress) / (1 - FALL_FROM))


def share_at(shares, progress):
    return next(share for until, share in shares if progress < until)


def is_long(step, progress):
    """Whether this step learns from long rows; they are spread evenly."""
    share = share_at(LONG_SHARES, progress)
    return int((step + 1) * share) > int(step * share)


@torch.no_grad()
def score(model, encoder, rows):
    """{task: (right, of)}; greedy decoding is right iff every expected token is the argmax."""
    chats = [row["messages"] + [{"role": "assistant", "content": row["expect"]}] for row in rows]
    encoded = sorted(
        zip(encoder.encode(chats), (row["task"] for row in rows)), key=lambda e: len(e[0][0])
    )
    result = {}
    for start in range(0, len(encoded), 50):
        part = encoded[start : start + 50]
        length = -(-len(part[-1][0][0]) // CHUNK) * CHUNK
        tokens = torch.full((len(part), length), encoder.end)
        targets = torch.full((len(part), length), -1)
        for row, ((ids, spoken), _) in enumerate(part):
            tokens[row, : len(ids)] = torch.tensor(ids)
            wanted = [t if said else -1 for t, said in zip(ids[1:], spoken[1:])]
            targets[row, : len(wanted)] = torch.tensor(wanted)
        first = torch.zeros_like(tokens, dtype=torch.bool)
        first[:, 0] = True
        hidden, _ = model.hidden(tokens, first)
        wrong = torch.zeros(len(part), dtype=torch.bool)
        where = targets >= 0
        missed = model.logits(hidden[where]).argmax(-1) != targets[where]
        wrong.index_put_((where.nonzero()[:, 0][missed],), torch.tensor(True))
        for (_, task), bad in zip(part, wrong.tolist()):
            right, of = result.get(task, (0, 0))
            result[task] = (right + (not bad), of + 1)
    return result


def overall(result):
    """Mean over the scored tasks of the share of right answers."""
    return sum(result[task][0] / result[task][1] for task in SCORED) / len(SCORED)


def report(result):
    tasks = " ".join(
        f"{task} {100 * right / of:.0f}" for task, (right, of) in sorted(result.items())
    )
    return f"{100 * overall(result):.1f} % ({tasks})"


def prepare(work, size):
    """Tokenizer (the demo's is made once, the other sizes take it) and encoder."""
    path = (work if size == "demo" else DEMO) / "tokenizer.json"
    if not path.exists():
        train_tokenizer(Corpus(), VOCABULARY).save(str(path))
    tokenizer = Tokenizer.from_file(str(path))
    return tokenizer, ChatEncoder(tokenizer)


def save(path, content):
    """Whole or not at all: a kill between two checkpoints loses minutes, never the file."""
    torch.save(content, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


class Trainer:
    def __init__(self, work, minutes, compiled, seed, processes, size):
        self.work, self.seconds = work, minutes * 60
        tokenizer, self.encoder = prepare(work, size)
        torch.manual_seed(seed)
        self.model = DemoModel(shape_of(tokenizer.get_vocab_size(), size))
        self.hidden = (
            torch.compile(self.model.hidden, dynamic=False) if compiled else self.model.hidden
        )
        named = list(self.model.named_parameters())
        rest = [p for n, p in named if not is_matrix(n, p)]
        self.optimisers = [
            (Muon(p for n, p in named if is_matrix(n, p)), MUON_RATE),
            (torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0), ADAM_RATE),
        ]
        self.rows = held_out()
        self.step, self.spent, self.tokens, self.best = 0, 0.0, 0, -1.0
        if (work / "checkpoint.pt").exists():
            self.resume(torch.load(work / "checkpoint.pt"))
        self.stopping = False
        self.crew = Crew(self.model, self.encoder, seed, compiled, processes)

    def resume(self, saved):
        self.model.load_state_dict(saved["model"])
        for (optimiser, _), state in zip(self.optimisers, saved["optimisers"]):
            optimiser.load_state_dict(state)
        self.step, self.spent, self.tokens, self.best = (
            saved[k] for k in ("step", "spent", "tokens", "best")
        )

    def checkpoint(self):
        save(
            self.work / "checkpoint.pt",
            {
                "model": self.model.state_dict(),
                "optimisers": [o.state_dict() for o, _ in self.optimisers],
                "step": self.step,
                "spent": self.spent,
                "tokens": self.tokens,
                "best": self.best,
            },
        )

    def check(self, loss):
        """Scores the weights as shipped (rounded to bf16), keeps the best, saves a checkpoint."""
        shipped = DemoModel(self.model.shape)
        shipped.load_state_dict(
            {k: v.bfloat16().float() for k, v in self.model.state_dict().items()}
        )
        result = score(shipped, self.encoder, self.rows)
        if overall(result) >= self.best:
            self.best = overall(result)
            save(
                self.work / "best.pt",
                {
                    "model": self.model.state_dict(),
                    "step": self.step,
                    "tokens": self.tokens,
                    "spent": self.spent,
                    "result": result,
                },
            )
        self.checkpoint()
        print(
            f"step {self.step} minute {self.spent / 60:.1f} Mtokens {self.tokens / 1e6:.2f} "
            f"loss {loss:.4f}: {report(result)}",
            flush=True,
        )

    def train_step(self, progress):
        """One step of the optimisers; returns its loss."""
        long = is_long(self.step, progress)
        loss = self.crew.step(self.step, long, share_at(DRILL_SHARES, progress))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser, top_rate in self.optimisers:
            optimiser.param_groups[0]["lr"] = top_rate * rate(progress)
            optimiser.step()
        self.step += 1
        self.tokens += tokens_per_step(long)
        return loss

    def stop(self, *_):
        """Signal handler: lets the step end."""
        self.stopping = True

    def run(self):
        mean, checked = 0.0, self.spent
        signal.signal(signal.SIGTERM, self.stop)
        while self.spent < self.seconds:
            started = time.monotonic()
            loss = self.train_step(self.spent / self.seconds)
            mean = loss if mean == 0.0 else 0.98 * mean + 0.02 * loss
            if self.step % 50 == 0:
                print(f"step {self.step} minute {self.spent / 60:.1f} loss {mean:.4f}", flush=True)
            self.spent += time.monotonic() - started
            if self.spent - checked > CHECK_EVERY:
                checked = self.spent
                self.check(mean)
            if self.stopping:
                self.checkpoint()
                sys.exit(143)
        self.check(mean)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=pathlib.Path, required=True, help="folder of tokenizer and checkpoints"
    )
    parser.add_argument(
        "--minutes", type=float, default=75, help="time to train in all, over all resumed runs"
    )
    parser.add_argument(
        "--size", choices=SIZES, default="demo", help="which of the models (default: demo)"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--no-compile", action="store_true", help="run without torch.compile (needs no g++)"
    )
    parser.add_argument(
        "--export", type=pathlib.Path, metavar="DIR", help="write the Hugging Face folder and stop"
    )
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        from demo.export import export

        tokenizer, encoder = prepare(arguments.work, arguments.size)
        shape = shape_of(tokenizer.get_vocab_size(), arguments.size)
        print(json.dumps(export(arguments.work, arguments.export, shape, tokenizer, encoder)))
    else:
        compiled = not arguments.no_compile
        trainer = Trainer(
            arguments.work,
            arguments.minutes,
            compiled,
            arguments.seed,
            arguments.processes,
            arguments.size,
        )
        trainer.run()


if __name__ == "__main__":
    main()
