#include "models/parts/short_conv.h"

#include <fmt/format.h>

#include "kernels/ops/conv.h"
#include "kernels/ops/draft_ring.h"
#include "models/parts/recurrence.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

void convolve(const ShortConvWeights& weights, const PartMemory& memory, kernels::Queue& queue,
              const RecurrentSpans& spans, const Tensor& x, const Tensor& y) {
  kernels::gated_conv(queue, {.x = x,
                              .weight = weights.conv_weight,
                              .bias = {},
                              .windows = memory.windows,
                              .span_begin = spans.span_begin,
                              .read_slot = spans.read_slot,
                              .write_slot = spans.write_slot,
                              .y = y});
}

/// The spans of the ring tables, of a step's tokens or of none, whose B, C and x are `own`; y of
/// all their rows. The ring has B * x: there B is one, and y is of no use.
Tensor convolve_ring(const ShortConv& part, const ShortConvWeights& weights,
                     const PartMemory& memory, const PartCall& call, const Tensor& own) {
  const RingTables& ring = call.tables.ring;
  const std::int64_t rows = ring.from.dim(0), channels = part.channels;
  const Tensor x = call.scratch.take(memory.rings.dtype, {rows, 3 * channels});
  const Tensor y = call.scratch.take(memory.rings.dtype, {rows, channels});
  kernels::extend_rows(call.queue, {.x = own.columns(0, 2 * channels),
                                    .ring = {},
                                    .from = ring.from,
                                    .y = x.columns(0, 2 * channels)});
  kernels::extend_rows(call.queue, {.x = own.columns(2 * channels, channels),
                                    .ring = memory.rings,
                                    .from = ring.from,
                                    .y = x.columns(2 * channels, channels)});
  convolve(weights, memory, call.queue, RecurrentSpans::with_ring(ring), x, y);
  return y;
}

/// The spans of a step in the ring tables, whose drafts are kept.
Tensor verify(const ShortConv& part, const ShortConvWeights& weights, const PartMemory& memory,
              const PartCall& call, const Tensor& own) {
  const Tensor y = convolve_ring(part, weights, memory, call, own);
  kernels::keep_rows(call.queue, {.x = own.columns(2 * std::int64_t{part.channels}, part.channels),
                                  .gate = own.columns(0, part.channels),
                                  .to = call.tables.ring.kept,
                                  .ring = memory.rings});
  return y;
}

void mix(const ShortConv& part, const ShortConvWeights& weights, const PartMemory& memory,
         const PartCall& call, const Tensor& x, const Tensor& y) {
  run_spans(
      call, y,
      [&](std::int64_t tokens) {
        convolve(weights, memory, call.queue, RecurrentSpans::without_ring(call.tables),
                 x.rows(0, tokens), y.rows(0, tokens));
      },
      [&](std::int64_t first, std::int64_t tokens) {
        return verify(part, weights, memory, call, x.rows(first, tokens));
      });
}

}  // namespace

ShortConvWeights ShortConv::weights(WeightVisitor& visitor, std::int64_t width) const {
  ShortConvWeights weights;
  weights.in_proj = visitor.matrix("conv.in_proj", 3 * std::int64_t{channels}, width);
  weights.conv_weight = visitor.taps({{"conv.weight", channels}}, conv_width);
  weights.out_proj = visitor.matrix("conv.out_proj", width, channels);
  return weights;
}

PartText ShortConv::text() const {
  return {.kind = "conv",
          .text = fmt::format("gated short convolution of {}, {} channels", conv_width, channels)};
}

std::size_t ShortConv::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t tokens = setting.limits.step_tokens, ring_rows = setting.limits.ring_rows;
  return Scratch::space(setting.activation, tokens, 3 * std::int64_t{channels}) +
         Scratch::space(setting.activation, tokens, channels) +
         Scratch::space(setting.activation, ring_rows, 3 * std::int64_t{channels}) +
         Scratch::space(setting.activation, ring_rows, channels);
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
  mix(*this, weights, memory, call, projected, mixed);
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

void ShortConv::advance(const ShortConvWeights& weights, const PartMemory& memory,
                        const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  convolve_ring(*this, weights, memory, call,
                Tensor(memory.rings.data, memory.rings.dtype, {0, 3 * std::int64_t{channels}}));
}

}  // namespace hyb::models
