#!/usr/bin/env python3
"""The hybrid families in float64: an oracle written from the formulas, with a switch per term.

Slow and plain on purpose: recurrences run token by token, nothing is chunked or fused. A term
that is switched off shows how much the logits depend on it (`part.terms`). Needs numpy
only. The plans (`plans`) say what a family is; the parts (`attention`, ...)
what it computes.
"""

import argparse
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import numpy

from checkpoints import checkpoint_files, quantised_weights
from reference import families
from reference.numerics import rms
from reference.part import terms


class Memory:
    """What one sequence remembers: of every layer what its parts do."""

    def __init__(self, plan):
        self.length = 0
        self.layers = []
        for blocks in plan.layers:
            parts = [part for block in blocks for part in block.parts]
            self.layers.append([self.of(part) for part in parts])

    def of(self, part):
        """A part that reads the keys and values of a layer has that layer's memory."""
        source = getattr(part, "kv_of", None)
        return part.nothing() if source is None else self.layers[source][0]


class Model:
    def __init__(self, config, tensors, off=()):
        """tensors: name -> array (uint16 means bf16); off: terms, or (term, layer) pairs."""
        self.config = families.text_config(config)
        self.plan = families.plan_for(config, tensors)
        self.off = set(off)
        self.router_gap = numpy.inf
        self.weights = quantised_weights.dequantised(tensors)

    def without(self, *off):
        """The same weights with some terms switched off."""
        other = object.__new__(Model)
        other.__dict__.update(self.__dict__, off=set(off), router_gap=numpy.inf)
        return other

    def has(self, term, layer=None):
        return term not in self.off and (term, layer) not in self.off

    def multiplier(self, name):
        return self.plan.multipliers.get(name, 1.0) if self.has(name) else 1.0

    def norm(self, name, x, is_on=True):
        weight = self.weights[name] + (1.0 if self.plan.norm == "rms_1p" else 0.0)
        if self.plan.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        return rms(x, weight if is_on else 1.0, self.plan.eps)

    def inputs_of(self, tokens, h):
        """[T, layers, width], as Plan.layer_inputs says, or None."""
        inputs = self.plan.layer_inputs
        if not inputs:
            return None
        shape = (len(h), len(self.plan.layers), inputs.width)
        projected = (h @ self.weights[inputs.projection].T / self.plan.hidden**0.5).reshape(shape)
        projected = rms(projected, self.weights[inputs.norm], self.plan.eps)
        if not self.has("layer_embedding"):
            return projected * 0.5**0.5
        tokens = numpy.asarray(tokens)
        rows = numpy.where(tokens < inputs.vocab, tokens, 0)
        own = self.weights[inputs.embed][rows].reshape(shape)
        return (own * inputs.width**0.5 + projected) * 0.5**0.5

    def run_block(self, layer, block, h, kept, start):
        """The residual stream after a block, which got h."""
        u, weighs = h, self.has("norm_weights", layer)
        scale = self.multiplier("residual_multiplier")
        parts = list(block.parts)
        if block.feeds_norm:
            u = h + parts.pop(0).run(self, layer, h, next(kept), start)
        if block.norm:
            u = self.norm(block.norm, u, weighs)
        branch, self.residual = 0.0, h
        for i, part in enumerate(parts):
            names = block.part_norms[i] if block.part_norms else None
            if names:
                u = self.norm(names[0], h, weighs)
            y = part.run(self, layer, u, next(kept), start)
            if names:
                y = self.norm(names[1], y, weighs)
            branch = branch + scale * part.factor(self, layer, "out") * y
        if block.carried and self.has("carried_norm", layer):
            h = u * (block.carried if self.has("carried_factor", layer) else 1.0)
        if block.post_norm and self.has("post_norm", layer):
            branch = self.norm(block.post_norm, branch, weighs)
        h = h + branch
        if block.factor and self.has("factor", layer):
            h = h * self.weights[block.factor]
        if block.low_rank:
            h = (h + u + self.low_rank(layer, block.low_rank, u)) * 0.5**0.5
        return h

    def low_rank(self, layer, names, u):
        if not self.has("low_rank", layer):
            return 0.0
        y = u @ self.weights[names.left].T @ self.weights[names.right].T
        return self.norm(names.norm, y, self.has("norm_weights", layer))

    def spread(self, h):
        """The streams [n, T, hidden] that the first layer gets."""
        names = [self.plan.altup.projection("altup_projections", i) for i in self.others()]
        return numpy.stack([h] + [self.like(h, h @ self.weights[name].T) for name in names])

    def united(self, streams):
        """What the final norm gets."""
        kind = "altup_unembed_projections"
        names = [self.plan.altup.projection(kind, i) for i in self.others()]
        projected = [y @ self.weights[name].T for y, name in zip(streams[1:], names)]
        return numpy.mean([streams[0]] + [self.like(streams[0], y) for y in projected], axis=0)

    def others(self):
        return range(1, self.plan.altup.streams)

    def like(self, h, y):
        """y with the magnitude of h."""
        if not self.has("altup_magnitude"):
            return y
        magnitude = lambda x: (x * x).mean(-1, keepdims=True)
        return y * (magnitude(h) / numpy.maximum(magnitude(y), 1e-5)) ** 0.5

    def coefficients(self, layer, role, h):
        """[T, rows of the role's weight]."""
        altup = self.plan.altup
        x = self.norm(altup.name(layer, "router_norm.weight"), h, self.has("norm_weights", layer))
        said = x @ self.weights[altup.name(layer, "modality_router.weight")].T / self.plan.hidden
        said = numpy.tanh(said) if self.has("altup_router", layer) else numpy.full_like(said, 0.5)
        return said @ self.weights[altup.name(layer, role + "_coefs.weight")].T

    def predicted(self, layer, streams):
        altup = self.plan.altup
        if not self.has("altup_predict", layer):
            return streams
        c = self.coefficients(layer, "prediction", streams[altup.active])
        c = c.reshape(len(c), altup.streams, altup.streams)
        return streams + numpy.einsum("tji,ith->jth", c, streams)

    def corrected(self, layer, predictions, h):
        c = 1.0
        if self.has("altup_correct", layer):
            c = 1.0 + self.coefficients(layer, "correction", h).T[..., None]
        return predictions + (h - predictions[self.plan.altup.active]) * c

    def run_streams(self, layer, blocks, streams, kept, start):
        altup = self.plan.altup
        predictions = self.predicted(layer, streams)
        h = predictions[altup.active]
        for block in blocks:
            if not block.to_others:
                h = self.run_block(layer, block, h, kept, start)
        streams = self.corrected(layer, predictions, h)
        for block in blocks:
            if block.to_others:
                h = streams[altup.active]
                if altup.scales_output and self.has("altup_scale", layer):
                    h = h * self.weights[altup.name(layer, "correct_output_scale")]
                streams[1:] += self.run_block(layer, block, h, kept, start) - h
        return streams

    def forward(self, tokens, memory=None):
        """Logits [T, vocab] and the residual stream [layers + 1, T, hidden] of the next tokens; of
        several streams all, beside each other."""
        memory = memory or Memory(self.plan)
        embedding = self.weights[self.plan.embed]
        h = embedding[numpy.asarray(tokens)] * self.multiplier("embedding_multiplier")
        self.embedding = h
        self.layer_inputs = self.inputs_of(tokens, h)
        streams = self.spread(h) if self.plan.altup else h[None]
        stream = [streams]
        for layer, blocks in enumerate(self.plan.layers):
            kept = iter(memory.layers[layer])
            if self.plan.altup:
                streams = self.run_streams(layer, blocks, streams, kept, memory.length)
            else:
                for block in blocks:
                    streams = self.run_block(layer, block, streams[0], kept, memory.length)[None]
            stream.append(streams)
        memory.length += len(tokens)
        h = self.united(streams) if self.plan.altup else streams[0]
        final = self.norm(self.plan.final_norm, h)
        head = self.weights[self.plan.head] if self.plan.head else embedding
        logits = final @ head.T * self.multiplier("lm_head_multiplier")
        logits = logits / self.multiplier("logits_scaling")
        if self.plan.logits_cap and self.has("logits_cap"):
            logits = self.plan.logits_cap * numpy.tanh(logits / self.plan.logits_cap)
        stream = numpy.stack([numpy.concatenate(list(each), -1) for each in stream])
        return logits, stream

    def greedy(self, prompt, count):
        """count tokens, each the most likely one, and the logits [count, vocab] that chose them."""
        memory = Memory(self.plan)
        logits = self.forward(prompt, memory)[0][-1]
        tokens, rows = [], []
        for _ in range(count):
            rows.append(logits)
            tokens.append(int(logits.argmax()))
            logits = self.forward(tokens[-1:], memory)[0][-1]
        return tokens, numpy.stack(rows)

    def terms(self):
        """The terms of this model: term -> layers in which it acts ([None]: the whole model)."""
        found = {name: [None] for name in self.plan.multipliers}
        parts = self.plan.parts()
        if any(getattr(part, "multiplier", None) is not None for part in parts):
            found["attention_multiplier"] = [None]
        if self.plan.logits_cap:
            found["logits_cap"] = [None]
        if self.plan.layer_inputs:
            found["layer_embedding"] = [None]
        if self.plan.altup:
            found["altup_magnitude"] = [None]
        for layer, blocks in enumerate(self.plan.layers):
            found.setdefault("norm_weights", []).append(layer)
            if self.plan.altup:
                scales = ["altup_scale"] if self.plan.altup.scales_output else []
                for term in ["altup_router", "altup_predict", "altup_correct", *scales]:
                    found.setdefault(term, []).append(layer)
            if any(block.low_rank for block in blocks):
                found.setdefault("low_rank", []).append(layer)
            if any(block.carried for block in blocks):
                found.setdefault("carried_norm", []).append(layer)
            if any((block.carried or 1.0) != 1.0 for block in blocks):
                found.setdefault("carried_factor", []).append(layer)
            if any(block.post_norm for block in blocks):
                found.setdefault("post_norm", []).append(layer)
            if any(block.factor for block in blocks) and layer + 1 < len(self.plan.layers):
                # The last one scales what the final norm gets, so that nothing changes.
                found.setdefault("factor", []).append(layer)
            for part in [part for block in blocks for part in block.parts]:
                for term in [*part.terms(), *part.factor_terms()]:
                    found.setdefault(term, []).append(layer)
        return {term: found[term] for term in terms if term in found}


def load(folder):
    config = checkpoint_files.read_json(folder + "/config.json")
    return Model(config, checkpoint_files.read_weights(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="model folder: config.json and safetensors")
    parser.add_argument("--tokens", required=True, help="prompt: token ids with commas between")
    parser.add_argument("--count", type=int, default=16, help="tokens to generate greedily")
    parser.add_argument("--off", action="append", default=[], choices=terms, help="switch off")
    args = parser.parse_args()
    model = load(args.folder).without(*args.off)
    tokens, rows = model.greedy([int(token) for token in args.tokens.split(",")], args.count)
    for token, row in zip(tokens, rows):
        second = numpy.partition(row, -2)[-2]
        print(f"{token}\tlogit {row[token]:.6f}\tmargin {row[token] - second:.6f}")


if __name__ == "__main__":
    main()
