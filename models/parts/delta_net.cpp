#include "kernels/linear/project.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/recurrent_step.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Between the projections: `x` goes through the convolution and, with `b` and `a`, the delta rule.
struct Mixed {
  Tensor x, b, a, convolved, y;
};

/// One more token of every sequence.
void step(const DeltaNet& part, const DeltaNetWeights& weights, const RecurrentMemory& memory,
          const PartCall& call, const Mixed& mixed) {
  kernels::delta_step(call.queue, {.x = mixed.x,
                                   .b = mixed.b,
                                   .a = mixed.a,
                                   .conv_weight = weights.conv_weight,
                                   .conv_bias = {},
                                   .windows = memory.windows,
                                   .a_log = weights.a_log,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .read_slot = call.tables.read_slot,
                                   .write_slot = call.tables.write_slot,
                                   .y = mixed.y,
                                   .convolved = mixed.convolved,
                                   .tickets = memory.tickets.rows(0, mixed.x.dim(0)),
                                   .key_heads = part.key_heads});
}

void mix(const DeltaNet& part, const DeltaNetWeights& weights, const RecurrentMemory& memory,
         const PartCall& call, const Mixed& mixed) {
  if (call.tables.single_tokens) return step(part, weights, memory, call, mixed);
  const StepTables& tables = call.tables;
  kernels::causal_conv(call.queue, {.x = mixed.x,
                                    .weight = weights.conv_weight,
                                    .bias = {},
                                    .windows = memory.windows,
                                    .span_begin = tables.span_begin,
                                    .read_slot = tables.read_slot,
                                    .write_slot = tables.write_slot,
                                    .y = mixed.convolved});
  kernels::delta_rule(call.queue, {.x = mixed.convolved,
                                   .b = mixed.b,
                                   .a = mixed.a,
                                   .a_log = weights.a_log,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .span_begin = tables.span_begin,
                                   .read_slot = tables.read_slot,
                                   .write_slot = tables.write_slot,
                                   .y = mixed.y,
                                   .workspace = memory.workspace,
                                   .key_heads = part.key_heads});
}

}  // namespace

void run(const DeltaNet& part, const DeltaNetWeights& weights, const RecurrentMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t heads = part.value_heads;
  const std::int64_t conv_dim = part.conv_dim();
  const Tensor qkvz = call.scratch.take(dtype, {tokens, conv_dim + part.values()});
  const Tensor ba = call.scratch.take(dtype, {tokens, 2 * heads});
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim});
  const Tensor mixed = call.scratch.take(dtype, {tokens, part.values()});

  for (const auto& [weight, y] : {std::pair(&weights.qkvz, qkvz), std::pair(&weights.ba, ba)}) {
    kernels::project(
        call.queue,
        {.x = call.x, .norm = call.norm, .weight = weight, .y = y, .normed = call.normed});
  }
  mix(part, weights, memory, call,
      {.x = qkvz.columns(0, conv_dim),
       .b = ba.columns(0, heads),
       .a = ba.columns(heads, heads),
       .convolved = convolved,
       .y = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .norm = {.weight = weights.norm,
                                         .eps = call.norm_eps,
                                         .gate = qkvz.columns(conv_dim, part.values()),
                                         .groups = heads,
                                         .norm_first = true},
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const DeltaNet& part, std::int64_t tokens, DType activation) {
  return Scratch::space(activation, tokens, part.conv_dim() + part.values()) +
         Scratch::space(activation, tokens, 2 * std::int64_t{part.value_heads}) +
         Scratch::space(activation, tokens, part.conv_dim()) +
         Scratch::space(activation, tokens, part.values());
}

}  // namespace hyb::models
