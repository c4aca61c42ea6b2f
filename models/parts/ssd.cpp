#include "kernels/ops/ssd.h"

#include "kernels/linear/linear.h"
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/gated_norm.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

void run(const Ssd& part, const SsdWeights& weights, const SsdMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t inner = part.inner();
  const std::int64_t conv_dim = part.conv_dim();
  const Tensor projected = call.scratch.take(dtype, {tokens, part.projection()});
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim});
  const Tensor mixed = call.scratch.take(dtype, {tokens, inner});
  const Tensor gate = projected.columns(0, inner);
  const Tensor xbc = projected.columns(inner, conv_dim);
  const Tensor dt = projected.columns(inner + conv_dim, part.heads);

  kernels::linear(call.queue, {.x = call.x, .weight = &weights.in_proj, .y = projected});
  const StepTables& tables = call.tables;
  kernels::causal_conv(call.queue, {.x = xbc,
                                    .weight = weights.conv_weight,
                                    .bias = weights.conv_bias,
                                    .windows = memory.windows,
                                    .span_begin = tables.span_begin,
                                    .read_slot = tables.read_slot,
                                    .write_slot = tables.write_slot,
                                    .y = convolved});
  kernels::ssd(call.queue, {.x = convolved,
                            .dt = dt,
                            .a_log = weights.a_log,
                            .d = weights.d,
                            .dt_bias = weights.dt_bias,
                            .state = memory.states,
                            .span_begin = tables.span_begin,
                            .read_slot = tables.read_slot,
                            .write_slot = tables.write_slot,
                            .y = mixed,
                            .groups = part.groups,
                            .dt_min = part.dt_min,
                            .dt_max = part.dt_max});
  kernels::gated_norm(call.queue, {.x = mixed,
                                   .gate = gate,
                                   .weight = weights.norm,
                                   .y = mixed,
                                   .eps = call.norm_eps,
                                   .groups = part.norm_groups});
  kernels::linear(call.queue, {.x = mixed,
                               .weight = &weights.out_proj,
                               .y = call.residual,
                               .scale = call.residual_scale,
                               .add = true});
}

std::size_t scratch_bytes(const Ssd& part, std::int64_t tokens, std::int64_t, DType activation) {
  const auto bytes = [&](std::int64_t columns) {
    return Scratch::padded(static_cast<std::size_t>(tokens * columns) * size_of(activation));
  };
  return bytes(part.projection()) + bytes(part.conv_dim()) + bytes(part.inner());
}

}  // namespace hyb::models
