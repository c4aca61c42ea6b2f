"""What small models learn from the demo: its words on the synthetic corpus, and how they learn."""

import argparse
import pathlib
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from demo.corpus import Corpus
from demo.crew import LONG, SHORT
from demo.model import DemoModel, Places, shape_of
from demo.text import ChatEncoder, Packer
from demo.train import ADAM_RATE, DEMO, MUON_RATE, Muon, rate

DRILLS = 0.1  # share of the short chats
LONG_EVERY = 8  # steps
POOL = 320  # steps whose lessons are kept
REPORT_EVERY = 50  # steps
WRITE_EVERY = 120.0  # seconds


class Lesson:
    """A batch and what the demo says of it."""

    def __init__(self, tokens, first, targets, read, logits):
        self.tokens, self.first = tokens, first  # [B,T]; first: of a chat
        self.counted = targets >= 0  # [B,T]: the next token is of an answer
        self.read = read  # [B,T,3H]: what enters the layers 2, n/2 and n-3
        self.logits = logits[self.counted]  # [counted,V]


class Teacher:
    """The demo. A step's lesson is made once, and serves again POOL steps later."""

    def __init__(self, seed):
        self.tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
        self.model = DemoModel(shape_of(self.tokenizer.get_vocab_size()))
        weights = load_file(DEMO / "model.safetensors")
        self.model.load_state_dict({name: value.float() for name, value in weights.items()})
        self.model.requires_grad_(False)
        self.encoder = ChatEncoder(self.tokenizer)
        self.packer = Packer(Corpus(), self.encoder, seed)
        self.lessons = {}

    def batch(self, index):
        if index % LONG_EVERY == LONG_EVERY - 1:
            return self.packer.batch(index, *LONG, True)
        return self.packer.batch(index, *SHORT, False, DRILLS)

    def lesson(self, step):
        index = step % POOL
        if index not in self.lessons:
            tokens, first, targets = self.batch(index)
            self.lessons[index] = Lesson(tokens, first, targets, *self.observe(tokens, first))
        return self.lessons[index]

    @torch.no_grad()
    def observe(self, tokens, first):
        model, places = self.model, Places.of(first)
        h = self.embedding(tokens) * model.shape.embedding_multiplier
        count = len(model.model.layers)
        taps, read = (2, count // 2, count - 3), []
        with torch.autocast("cpu", torch.bfloat16):
            for number, layer in enumerate(model.model.layers):
                if number in taps:
                    read.append(h)
                h, _ = layer(h, places)
            logits = model.logits(model.model.norm(h))
        return torch.cat(read, -1).bfloat16(), logits.bfloat16()

    def embedding(self, tokens):
        return F.embedding(tokens, self.model.model.embed_tokens.weight)


def begin(description, minutes):
    """Of a script that trains: its arguments, and the teacher. On one thread."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    return arguments, Teacher(arguments.seed)


def optimisers_of(model, tables):
    """Matrices learn with Muon; norms, vectors and those whose names hold one of `tables` (rows by
    token or by expert) with AdamW. (optimiser, highest rate) of each."""
    named = list(model.named_parameters())
    turned = {n for n, p in named if p.ndim >= 2 and not any(table in n for table in tables)}
    rest = [p for n, p in named if n not in turned]
    return [
        (Muon(p for n, p in named if n in turned), MUON_RATE),
        (torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0), ADAM_RATE),
    ]


def learn(model, optimisers, loss_of, write, minutes):
    """Trains for `minutes` of this process' processor time, which a busy machine does not change.
    loss_of(step): loss and shares of right tokens to report. write() is called now and then, and
    at the end."""
    written, total, step = time.monotonic(), 0.0, 0
    began = time.process_time()
    while (spent := (time.process_time() - began) / 60) < minutes:
        with torch.autocast("cpu", torch.bfloat16):
            loss, shares = loss_of(step)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, top_rate in optimisers:
            optimiser.param_groups[0]["lr"] = top_rate * rate(spent / minutes)
            optimiser.step()
        total = total + torch.tensor([loss.item(), *shares])
        step += 1
        if step % REPORT_EVERY == 0:
            mean, *right = (total / REPORT_EVERY).tolist()
            shown = " ".join(f"{100 * share:.0f}" for share in right)
            print(f"step {step} minute {spent:.2f} loss {mean:.4f} right {shown} %", flush=True)
            total = 0.0
        if time.monotonic() - written > WRITE_EVERY:
            written = time.monotonic()
            write()
    write()
    print(f"{step} steps in {minutes} minutes", flush=True)
