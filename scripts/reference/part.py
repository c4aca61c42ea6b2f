"""What the parts of the float64 reference have in common: attention, ssd, delta, ... of a layer."""

import numpy

# term -> what switching it off means. Where a layer is given, only that layer loses the term.
terms = {
    "embedding_multiplier": "is one",
    "residual_multiplier": "is one",
    "logits_scaling": "is one",
    "lm_head_multiplier": "is one",
    "attention_in_multiplier": "is one",
    "attention_out_multiplier": "is one",
    "key_multiplier": "is one",
    "ssm_in_multiplier": "is one",
    "ssm_out_multiplier": "is one",
    "ssm_multiplier_z": "is one",
    "ssm_multiplier_x": "is one",
    "ssm_multiplier_b": "is one",
    "ssm_multiplier_c": "is one",
    "ssm_multiplier_dt": "is one",
    "mlp_gate_multiplier": "is one",
    "mlp_down_multiplier": "is one",
    "shared_mlp": "the shared MLP, or the only one, gives zero",
    "norm_weights": "the weights of the layer's norms are one",
    "state": "the recurrent state is zero before every token",
    "lightning_silu": "q, k and v of lightning attention are taken as they are",
    "carried_norm": "blocks add to what they get",
    "carried_factor": "is one",
    "added_factor": "is one",
    "decay_channels": "all channels of a key decay alike",
    "decay_floor": "channels decay as Kimi Linear's do, by softplus",
    "turned_queries": "latents and their queries are not rotated",
    "latent_gate": "the gate of attention by latents is one",
    "silu_limit": "the silu of gates, and ups, have no limit",
    "latent_norm": "latents are not normalised",
    "turned_keys": "the part of the keys that heads share is zero",
    "decay": "the recurrent state never decays",
    "conv": "all taps but the current token's are zero",
    "skip": "D is zero",
    "dt_bias": "the bias of dt is zero",
    "dt_min": "time steps have no lower limit",
    "dt_max": "time steps have no upper limit",
    "gate": "silu(z) is one",
    "gated_norm_weight": "the weight of the gated norm is one",
    "conv_bias": "the bias of the convolution is zero",
    "gated_norm_groups": "the gated norm takes all channels as one group",
    "gated_norm_order": "the gated norm gates first where it norms first, and the reverse",
    "selection_norms": "dt, B and C of Mamba-1 are not normalised",
    "selection_norm_weights": "the weights of their norms are one",
    "ssd_groups": "every head reads B and C of group 0",
    "past": "attention sees the current token only",
    "window": "attention sees all positions before its own",
    "sinks": "the softmax has the scores of positions only",
    "score_cap": "scores of attention have no limit",
    "attention_bias": "the biases of q, k and v, and of o, are zero",
    "logits_cap": "logits have no limit",
    "post_norm": "what a block adds is not normalised",
    "factor": "the residual stream is not scaled after a block",
    "attention_multiplier": "is head_dim^-0.5",
    "rope": "q and k are not rotated",
    "rope_scaling": "pairs rotate at powers of theta, and keep their length",
    "experts": "the experts give zero",
    "expert_bias": "the biases of the experts' products are zero",
    "router_logit_bias": "the bias of the router's logits is zero",
    "swiglu_limit": "gates and ups of the experts have no limit",
    "swiglu_alpha": "is one",
    "swiglu_one": "ups of the experts are not one more",
    "router_weights": "every chosen expert has the same weight",
    "router_choice": "the experts with the smallest scores are chosen",
    "partial_rope": "all dimensions of q and k are rotated",
    "qk_norm": "q and k are not normalised",
    "qk_norm_weights": "the weights of the norms of q and k are one",
    "whole_norm": "q and k are normalised head by head",
    "value_norm": "v is not normalised",
    "output_gate": "the gate of attention is one",
    "beta": "the delta rule writes in full",
    "beta_scale": "is one",
    "correction": "the delta rule adds v whatever it reads for k",
    "l2_norm": "q and k of the delta rule are not normalised",
    "key_heads": "value head j reads key head j modulo their number",
    "conv_in_gate": "B of the short convolution is one",
    "conv_out_gate": "C of the short convolution is one",
    "router_bias": "the bias of the router's choice is zero",
    "router_groups": "experts of all groups can be chosen",
    "router_norm": "the weights of the chosen experts are not divided by their sum",
    "router_scale": "is one",
    "shared_gate": "the gate of the shared expert is one",
    "mlp": "the MLP gives zero",
    "layer_input": "what a layer makes of its own embedding is zero",
    "layer_embedding": "this embedding is zero, its projection of the common one is not",
    "sparse_gate": "no gate of the MLP is taken for zero",
    "low_rank": "the low-rank residual gives zero beside the normalised input",
    "altup_router": "every stream is predicted and corrected as if its router said one half",
    "altup_predict": "the streams of a layer are those that it got",
    "altup_correct": "every stream is corrected alike",
    "altup_scale": "what a layer's own embedding meets is not scaled",
    "altup_magnitude": "streams keep the magnitudes that their projections give them",
}


class Part:
    """Computes one part of one layer. `names`: role -> end of the tensor's name after `prefix`;
    `factors`: place -> (term, value), a constant factor; "out" is that of what the part gives."""

    names, factors = {}, {}

    def __init__(self, hidden, prefix, names=None, **options):
        self.hidden = hidden
        self.name = {role: prefix + end for role, end in {**self.names, **(names or {})}.items()}
        self.__dict__.update(options)

    def tensors(self):
        """(name, shape, kind) of each; kinds are those of checkpoint_files.values_of."""
        raise NotImplementedError

    def terms(self):
        """The terms of the table above that act in this part."""
        raise NotImplementedError

    def nothing(self):
        """What a new sequence remembers for this part."""
        return {}

    def run(self, model, layer, u, memory, start):
        """u [T, hidden], the tokens from position `start` on -> [T, hidden]."""
        raise NotImplementedError

    def factor(self, model, layer, place):
        term, value = self.factors.get(place, (None, 1.0))
        return value if model.has(term, layer) else 1.0

    def factor_terms(self):
        return [term for term, value in self.factors.values() if value != 1.0]

    def get(self, model, role):
        return model.weights[self.name[role]]

    def apply(self, model, role, x):
        return x @ self.get(model, role).T

    def per_expert(self, role):
        return "{}" in self.name[role]

    def stacked(self, model, role):
        """[E, out, in], whether stored as one tensor or as one for each expert."""
        if not self.per_expert(role):
            return self.get(model, role)
        each = [model.weights[self.name[role].format(j)] for j in range(self.experts)]
        return numpy.stack(each)
