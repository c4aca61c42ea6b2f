#include "kernels/ops/conv.h"

#include "kernels/linear/project.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

void run(const ShortConv& part, const ShortConvWeights& weights, const RecurrentMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const std::int64_t channels = part.channels;
  const Tensor projected = call.scratch.take(call.x.dtype, {tokens, 3 * channels});
  const Tensor mixed = call.scratch.take(call.x.dtype, {tokens, channels});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  kernels::short_conv(call.queue, {.x = projected,
                                   .weight = weights.conv_weight,
                                   .bias = {},
                                   .windows = memory.windows,
                                   .span_begin = call.tables.span_begin,
                                   .read_slot = call.tables.read_slot,
                                   .write_slot = call.tables.write_slot,
                                   .y = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const ShortConv& part, std::int64_t tokens, DType activation) {
  return Scratch::space(activation, tokens, 3 * std::int64_t{part.channels}) +
         Scratch::space(activation, tokens, part.channels);
}

}  // namespace hyb::models
