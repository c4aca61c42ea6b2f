#include "kernels/ops/ssd.h"

#include "kernels/linear/project.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/recurrent_step.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Between the projections: what goes through the convolution and the recurrence.
struct Mixed {
  Tensor x, dt, convolved, y;
};

/// One more token of every sequence.
void step(const Ssd& part, const SsdWeights& weights, const RecurrentMemory& memory,
          const PartCall& call, const Mixed& mixed) {
  kernels::mamba_step(call.queue, {.x = mixed.x,
                                   .dt = mixed.dt,
                                   .conv_weight = weights.conv_weight,
                                   .conv_bias = weights.conv_bias,
                                   .windows = memory.windows,
                                   .a_log = weights.a_log,
                                   .d = weights.d,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .read_slot = call.tables.read_slot,
                                   .write_slot = call.tables.write_slot,
                                   .y = mixed.y,
                                   .convolved = mixed.convolved,
                                   .tickets = memory.tickets.rows(0, mixed.x.dim(0)),
                                   .groups = part.groups,
                                   .dt_min = part.dt_min,
                                   .dt_max = part.dt_max});
}

void mix(const Ssd& part, const SsdWeights& weights, const RecurrentMemory& memory,
         const PartCall& call, const Mixed& mixed) {
  if (call.tables.single_tokens) return step(part, weights, memory, call, mixed);
  const StepTables& tables = call.tables;
  kernels::causal_conv(call.queue, {.x = mixed.x,
                                    .weight = weights.conv_weight,
                                    .bias = weights.conv_bias,
                                    .windows = memory.windows,
                                    .span_begin = tables.span_begin,
                                    .read_slot = tables.read_slot,
                                    .write_slot = tables.write_slot,
                                    .y = mixed.convolved});
  kernels::ssd(call.queue, {.x = mixed.convolved,
                            .dt = mixed.dt,
                            .a_log = weights.a_log,
                            .d = weights.d,
                            .dt_bias = weights.dt_bias,
                            .state = memory.states,
                            .span_begin = tables.span_begin,
                            .read_slot = tables.read_slot,
                            .write_slot = tables.write_slot,
                            .y = mixed.y,
                            .workspace = memory.workspace,
                            .groups = part.groups,
                            .dt_min = part.dt_min,
                            .dt_max = part.dt_max});
}

}  // namespace

void run(const Ssd& part, const SsdWeights& weights, const RecurrentMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t inner = part.inner();
  const std::int64_t conv_dim = part.conv_dim();
  const Tensor projected = call.scratch.take(dtype, {tokens, part.projection()});
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim});
  const Tensor mixed = call.scratch.take(dtype, {tokens, inner});

  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  mix(part, weights, memory, call,
      {.x = projected.columns(inner, conv_dim),
       .dt = projected.columns(inner + conv_dim, part.heads),
       .convolved = convolved,
       .y = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .norm = {.weight = weights.norm,
                                         .eps = call.norm_eps,
                                         .gate = projected.columns(0, inner),
                                         .groups = part.norm_groups},
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const Ssd& part, std::int64_t tokens, DType activation) {
  return Scratch::space(activation, tokens, part.projection()) +
         Scratch::space(activation, tokens, part.conv_dim()) +
         Scratch::space(activation, tokens, part.inner());
}

}  // namespace hyb::models
