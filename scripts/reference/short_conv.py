"""The gated short convolution of LFM2."""

import numpy

from reference.numerics import causal_conv
from reference.part import Part


class ShortConv(Part):
    """Option: taps. Thirds of the projection: B, C, x; y = C * conv(B * x), no activation."""

    names = {"in": "in_proj.weight", "conv": "conv.weight", "out": "out_proj.weight"}

    def tensors(self):
        yield self.name["in"], (3 * self.hidden, self.hidden), "linear"
        yield self.name["conv"], (self.hidden, 1, self.taps), "linear"
        yield self.name["out"], (self.hidden, self.hidden), "linear"

    def terms(self):
        return ["conv", "conv_in_gate", "conv_out_gate"]

    def nothing(self):
        return {"window": numpy.zeros((self.taps - 1, self.hidden))}

    def run(self, model, layer, u, memory, start):
        gate_in, gate_out, x = numpy.split(self.apply(model, "in", u), 3, -1)
        taps = self.get(model, "conv")[:, 0]
        if not model.has("conv", layer):
            taps = taps * (numpy.arange(self.taps) == self.taps - 1)
        if model.has("conv_in_gate", layer):
            x = gate_in * x
        y, memory["window"] = causal_conv(x, taps, memory["window"])
        if model.has("conv_out_gate", layer):
            y = gate_out * y
        return self.apply(model, "out", y)
