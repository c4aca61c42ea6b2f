"""Feed-forward parts: an MLP, gated or relu^2, and a mixture of experts with its routers."""

import statistics

import numpy

from reference.numerics import gelu_tanh, rms, sigmoid, silu, softmax
from reference.part import Part

def limited(gate, up, limit):
    """gate is activated; 0: no limit."""
    return numpy.minimum(gate, limit) * numpy.clip(up, -limit, limit) if limit else gate * up


activations = {"gelu_tanh": gelu_tanh, "silu": silu}


class Mlp(Part):
    """Options: width; kind: "gated" (gate, up, down), "fused" (gate and up rows in one tensor, gate
    first) or "relu2" (up, down); activation of the gate: "silu" or "gelu_tanh"; term: what switches
    it off; sparsity (of kind "gated"): the share of gates that a normal distribution would have
    below the cutoff, which is subtracted from all; what is left of them is positive, or zero;
    limit (of kind "gated"): of the silu of gates, and of the size of ups; 0: none.
    Factor: "gate" (of kind "gated")."""

    names = {
        "gate": "gate_proj.weight",
        "up": "up_proj.weight",
        "gate_up": "input_linear.weight",
        "down": "down_proj.weight",
    }
    kind, activation, term, sparsity, limit = "gated", "silu", "mlp", 0.0, 0.0

    def tensors(self):
        if self.kind == "fused":
            yield self.name["gate_up"], (2 * self.width, self.hidden), "linear"
        if self.kind == "gated":
            yield self.name["gate"], (self.width, self.hidden), "linear"
        if self.kind != "fused":
            yield self.name["up"], (self.width, self.hidden), "linear"
        yield self.name["down"], (self.hidden, self.width), "linear"

    def terms(self):
        found = [self.term] + (["sparse_gate"] if self.sparsity else [])
        return found + (["silu_limit"] if self.limit else [])

    def sparse(self, gate):
        deviations = statistics.NormalDist().inv_cdf(self.sparsity)
        cutoff = gate.mean(-1, keepdims=True) + gate.std(-1, keepdims=True) * deviations
        return numpy.maximum(gate - cutoff, 0)

    def run(self, model, layer, u, memory, start):
        if not model.has(self.term, layer):
            return numpy.zeros_like(u)
        if self.kind == "fused":
            gate, up = numpy.split(self.apply(model, "gate_up", u), 2, -1)
            wide = activations[self.activation](gate) * up
        elif self.kind == "gated":
            gate = self.apply(model, "gate", u) * self.factor(model, layer, "gate")
            if self.sparsity and model.has("sparse_gate", layer):
                gate = self.sparse(gate)
            gate, up = activations[self.activation](gate), self.apply(model, "up", u)
            wide = limited(gate, up, self.limit if model.has("silu_limit", layer) else 0)
        else:
            wide = numpy.maximum(self.apply(model, "up", u), 0) ** 2
        return self.apply(model, "down", wide)


class LayerInput(Part):
    """What a layer makes of its own embedding of the tokens: see Plan.layer_inputs. Option:
    width."""

    names = {"gate": "per_layer_input_gate.weight", "projection": "per_layer_projection.weight"}

    def tensors(self):
        yield self.name["gate"], (self.width, self.hidden), "linear"
        yield self.name["projection"], (self.hidden, self.width), "linear"

    def terms(self):
        return ["layer_input"]

    def run(self, model, layer, u, memory, start):
        if not model.has("layer_input", layer):
            return numpy.zeros_like(u)
        gated = gelu_tanh(self.apply(model, "gate", u)) * model.layer_inputs[:, layer]
        return self.apply(model, "projection", gated)


class Moe(Part):
    """Options: experts, top_k, width (of an expert); kind: "fused" (gate_up, gate rows first),
    "gated", "relu2", "clamped": stored transposed, gates and ups by turns, with limit, alpha and
    biases, or "weighed": stored transposed, gates first, with weights that multiply what enters an
    expert; score: "none", "softmax" (over all) or "sigmoid"; norm: None, "softmax" over
    the chosen, or what is added to the sum that divides them; bias: kind of the tensor that is
    added to choose; groups, top_groups; scale; latent (0: none); shared: an Mlp or None;
    shared_gated; activation: "silu" or "gelu_tanh", of kind "fused"; limit: as an Mlp's, or of
    kind "clamped"; normed_router: it reads the residual stream with a norm of its own, and every
    expert has a factor. A name with {} is one tensor for each expert."""

    names = {"router": "gate.weight"}
    router_kind, score, norm, bias, groups, top_groups = "linear", "none", None, None, 1, 1
    scale, latent, shared, shared_gated = 1.0, 0, None, False
    activation, normed_router, limit = "silu", False, 0.0

    def tensors(self):
        inside = self.latent or self.hidden
        rows = {"gate": self.width, "up": self.width, "gate_up": 2 * self.width}
        roles = {"gated": ["gate", "up"], "relu2": ["up"]}.get(self.kind, ["gate_up"])
        shapes = {role: (rows[role], inside) for role in roles}
        shapes["down"] = (inside, self.width)
        if self.kind in ("clamped", "weighed"):
            shapes = {role: shape[::-1] for role, shape in shapes.items()}
        for role, shape in shapes.items():
            if self.per_expert(role):
                for j in range(self.experts):
                    yield self.name[role].format(j), shape, "linear"
            else:
                yield self.name[role], (self.experts, *shape), "linear"
        if self.kind == "clamped":
            yield self.name["gate_up_bias"], (self.experts, 2 * self.width), "bias"
            yield self.name["down_bias"], (self.experts, inside), "bias"
            yield self.name["router_bias"], (self.experts,), "bias"
        yield self.name["router"], (self.experts, self.hidden), self.router_kind
        if self.normed_router:
            yield self.name["router_norm"], (self.hidden,), "norm"
            yield self.name["expert_scale"], (self.experts,), "norm"
        if self.bias:
            yield self.name["bias"], (self.experts,), self.bias
        if self.latent:
            yield self.name["latent_in"], (self.latent, self.hidden), "linear"
            yield self.name["latent_out"], (self.hidden, self.latent), "linear"
        if self.shared:
            yield from self.shared.tensors()
        if self.shared_gated:
            yield self.name["shared_gate"], (1, self.hidden), "linear"

    def terms(self):
        found = self.shared.terms() if self.shared else []
        found += ["experts"] + (
            ["router_weights"] if self.top_k > 1 or self.kind == "weighed" else []
        )
        found += ["router_choice"] if self.top_k < self.experts else []
        if self.kind == "clamped":
            found += ["expert_bias", "router_logit_bias"]
            found += ["swiglu_limit", "swiglu_alpha", "swiglu_one"]
        elif self.limit and "silu_limit" not in found:
            found.append("silu_limit")
        found += ["router_bias"] if self.bias else []
        found += ["router_groups"] if self.top_groups < self.groups else []
        # Of a normed router a norm comes afterwards, which takes any common factor away.
        is_seen = self.norm not in (None, "softmax") and not self.normed_router
        found += ["router_norm"] if is_seen else []
        found += ["router_scale"] if self.scale != 1.0 else []
        return found + (["shared_gate"] if self.shared_gated else [])

    def run(self, model, layer, u, memory, start):
        out = numpy.zeros_like(u)
        if self.shared:
            extra = self.shared.run(model, layer, u, None, start)
            if self.shared_gated and model.has("shared_gate", layer):
                extra = extra * sigmoid(self.apply(model, "shared_gate", u))
            out = out + extra
        if model.has("experts", layer):
            out = out + self.mixture(model, layer, u)
        return out

    def note_gap(self, model, ranked, chosen, largest):
        if chosen < ranked.shape[-1]:
            gap = (ranked[:, chosen - 1] - ranked[:, chosen]) / largest
            model.router_gap = min(model.router_gap, gap.min())

    def within_groups(self, model, choice):
        """Of a group counts the sum of its two best; the experts of the others get zero."""
        best = numpy.sort(choice.reshape(len(choice), self.groups, -1), -1)[..., -2:].sum(-1)
        order = numpy.argsort(-best, axis=-1, kind="stable")
        ranked = numpy.take_along_axis(best, order, -1)
        self.note_gap(model, ranked, self.top_groups, numpy.abs(best).max())
        kept = numpy.zeros_like(best, bool)
        numpy.put_along_axis(kept, order[:, : self.top_groups], True, -1)
        return numpy.where(kept.repeat(self.experts // self.groups, -1), choice, 0.0)

    def route(self, model, layer, u):
        """The chosen experts and their weights, both [T, top_k]."""
        k = self.top_k
        if self.normed_router:
            u = rms(model.residual, self.get(model, "router_norm"), model.plan.eps)
            u = u / self.hidden**0.5
        logits = self.apply(model, "router", u)
        if self.kind == "clamped" and model.has("router_logit_bias", layer):
            logits = logits + self.get(model, "router_bias")
        score = {"none": lambda x: x, "softmax": softmax, "sigmoid": sigmoid}[self.score](logits)
        choice = score
        if self.bias and model.has("router_bias", layer):
            choice = score + self.get(model, "bias")
        if self.top_groups < self.groups and model.has("router_groups", layer):
            choice = self.within_groups(model, choice)
        order = numpy.argsort(-choice, axis=-1, kind="stable")
        ranked = numpy.take_along_axis(choice, order, -1)
        self.note_gap(model, ranked, k, numpy.abs(choice).max())
        if not model.has("router_choice", layer):
            order = order[:, ::-1]
        share = numpy.take_along_axis(score, order[:, :k], -1)
        if self.norm == "softmax":
            share = softmax(share)
        elif self.norm is not None and model.has("router_norm", layer):
            share = share / (share.sum(-1, keepdims=True) + self.norm)
        if not model.has("router_weights", layer):
            total = 1 if self.norm == "softmax" else share.sum(-1, keepdims=True)
            total = k if self.kind == "weighed" else total
            share = numpy.full_like(share, 1 / k) * total
        if self.normed_router:
            share = share * self.get(model, "expert_scale")[order[:, :k]]
        return order[:, :k], share * (self.scale if model.has("router_scale", layer) else 1.0)

    def clamped(self, model, layer, expert, x):
        """One expert's answer to one token."""
        has_biases = model.has("expert_bias", layer)
        of = lambda role: self.get(model, role)[expert] if has_biases else 0.0
        wide = x @ self.get(model, "gate_up")[expert] + of("gate_up_bias")
        gate, up = wide[0::2], wide[1::2]
        if model.has("swiglu_limit", layer):
            gate = numpy.minimum(gate, self.limit)
            up = numpy.clip(up, -self.limit, self.limit)
        alpha = self.alpha if model.has("swiglu_alpha", layer) else 1.0
        up = up + (1.0 if model.has("swiglu_one", layer) else 0.0)
        return gate * sigmoid(alpha * gate) * up @ self.get(model, "down")[expert] + of("down_bias")

    def mixture(self, model, layer, u):
        chosen, share = self.route(model, layer, u)
        if self.kind == "clamped":
            out = numpy.zeros_like(u)
            for t in range(len(u)):
                for expert, weight in zip(chosen[t], share[t]):
                    out[t] += weight * self.clamped(model, layer, expert, u[t])
            return out
        if self.kind == "weighed":
            out = numpy.zeros_like(u)
            for t in range(len(u)):
                for expert, weight in zip(chosen[t], share[t]):
                    wide = weight * u[t] @ self.get(model, "gate_up")[expert]
                    gate, up = numpy.split(wide, 2)
                    out[t] += silu(gate) * up @ self.get(model, "down")[expert]
            return out
        x = self.apply(model, "latent_in", u) if self.latent else u
        narrow = self.stacked(model, "down")
        if self.kind == "gated":
            first = numpy.concatenate([self.stacked(model, role) for role in ("gate", "up")], 1)
        else:
            first = self.stacked(model, "gate_up" if self.kind == "fused" else "up")
        limit = self.limit if model.has("silu_limit", layer) else 0
        out = numpy.zeros_like(x)
        for t in range(len(x)):
            for expert, weight in zip(chosen[t], share[t]):
                wide = first[expert] @ x[t]
                if self.kind == "relu2":
                    wide = numpy.maximum(wide, 0) ** 2
                else:
                    gate, up = numpy.split(wide, 2)
                    gate = activations[self.activation](gate)
                    wide = limited(gate, up, limit)
                out[t] += weight * (narrow[expert] @ wide)
        return self.apply(model, "latent_out", out) if self.latent else out
