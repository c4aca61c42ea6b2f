#include "models/parts/short_conv.h"

#include <fmt/format.h>

#include "kernels/ops/conv.h"

namespace hyb::models {

using kernels::Tensor;

ShortConvWeights ShortConv::weights(WeightVisitor& visitor, std::int64_t width) const {
  ShortConvWeights weights;
  weights.in_proj = visitor.matrix("conv.in_proj", 3 * std::int64_t{channels}, width);
  weights.conv_weight = visitor.taps("conv.weight", channels, conv_width);
  weights.out_proj = visitor.matrix("conv.out_proj", width, channels);
  return weights;
}

PartText ShortConv::text() const {
  return {.kind = "conv",
          .text = fmt::format("gated short convolution of {}, {} channels", conv_width, channels)};
}

std::size_t ShortConv::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t tokens = setting.limits.tokens;
  return Scratch::space(setting.activation, tokens, 3 * std::int64_t{channels}) +
         Scratch::space(setting.activation, tokens, channels);
}

void ShortConv::run(const ShortConvWeights& weights, const PartMemory& memory,
                    const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor projected = call.scratch.take(call.x.dtype, {tokens, 3 * std::int64_t{channels}});
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
                                .scale = output_scale,
                                .add = true});
}

}  // namespace hyb::models
