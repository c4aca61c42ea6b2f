"""Data-parallel training on a busy CPU: single-threaded processes that share the weights.

A step is a number of small batches; each process takes the next one when it is free, and they meet
once per step. Threads inside the operators would meet hundreds of times per step, and wait each
time for one whose core is shared with another process.
"""

import torch
import torch.multiprocessing as processes
import torch.nn.functional as F

from demo.corpus import Corpus
from demo.text import Packer

MICRO = 2  # small batches per step
SHORT = (8, 128)  # rows, tokens of a small batch
LONG = (2, 512)
BALANCE = 0.01
HALF = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # emulated bf16 is far slower than f32
PATIENCE = 900.0  # seconds to wait for the others before giving up


class Loss:
    """Runs one small batch and adds to the gradients of the model."""

    def __init__(self, model, encoder, seed, compiled):
        self.model = model
        self.hidden = torch.compile(model.hidden, dynamic=False) if compiled else model.hidden
        self.packer = Packer(Corpus(), encoder, seed)

    def add(self, index, long, drills=0.0):
        """Cross entropy of small batch `index`; gradients are those of the mean over a step."""
        rows, length = LONG if long else SHORT
        tokens, first, targets = self.packer.batch(index, rows, length, long, drills)
        with torch.autocast("cpu", torch.bfloat16, enabled=HALF):
            hidden, balance = self.hidden(tokens, first)
            counted = targets >= 0
            loss = F.cross_entropy(self.model.logits(hidden[counted]), targets[counted])
        ((loss + BALANCE * balance) / MICRO).backward()
        return loss.item()


class Meeting:
    """What the processes of a crew share besides the weights."""

    def __init__(self, context, size):
        self.begin, self.end = context.Barrier(size, timeout=PATIENCE), context.Barrier(
            size, timeout=PATIENCE
        )
        self.next = context.Value("l", 0)
        self.step = context.Value("l", 0, lock=False)
        self.long = context.Value("b", 0, lock=False)
        self.drills = context.Value("d", 0.0, lock=False)
        self.loss = torch.zeros(size).share_memory_()

    def take(self):
        """Number of the next small batch of this step."""
        with self.next.get_lock():
            self.next.value += 1
            return self.next.value - 1

    def work(self, loss, rank):
        """This process' part of the step."""
        self.loss[rank] = 0.0
        while (micro := self.take()) < MICRO:
            index = self.step.value * MICRO + micro
            self.loss[rank] += loss.add(index, bool(self.long.value), self.drills.value) / MICRO


def helper(rank, model, grads, encoder, seed, compiled, meeting):
    """Life of a helping process: ends with its parent."""
    torch.set_num_threads(1)
    for parameter, grad in zip(model.parameters(), grads):
        parameter.grad = grad
    loss = Loss(model, encoder, seed, compiled)
    while True:
        meeting.begin.wait()
        meeting.work(loss, rank)
        meeting.end.wait()


class Crew:
    """`size` processes, this one among them, that compute the gradients of one step."""

    def __init__(self, model, encoder, seed, compiled, size):
        torch.set_num_threads(1)
        self.model = model.share_memory()
        self.own = Loss(model, encoder, seed, compiled)
        for long in (False, True):  # compiles here, so that the helpers find the compiled code
            self.own.add(0, long)
        context = processes.get_context("spawn")
        self.meeting = Meeting(context, size)
        self.grads = []
        for rank in range(1, size):
            self.grads.append([torch.zeros_like(p).share_memory_() for p in model.parameters()])
            arguments = (rank, model, self.grads[-1], encoder, seed, compiled, self.meeting)
            context.Process(target=helper, args=arguments, daemon=True).start()

    def step(self, step, long, drills):
        """Leaves the gradients of the step in the model; returns its loss."""
        for parameter in self.model.parameters():
            parameter.grad.zero_()
        for grad in (grad for grads in self.grads for grad in grads):
            grad.zero_()
        self.meeting.next.value, self.meeting.step.value, self.meeting.long.value = 0, step, long
        self.meeting.drills.value = drills
        self.meeting.begin.wait()
        self.meeting.work(self.own, 0)
        self.meeting.end.wait()
        for grads in self.grads:
            for parameter, grad in zip(self.model.parameters(), grads):
                parameter.grad += grad
        return self.meeting.loss.sum().item()


def tokens_per_step(long):
    rows, length = LONG if long else SHORT
    return MICRO * rows * length
