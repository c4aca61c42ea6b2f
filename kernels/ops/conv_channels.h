#pragma once

#include <cstdint>

#include "kernels/ops/check.h"
#include "kernels/ops/conv.h"
#include "kernels/queue.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {

template <typename T>
ConvChannels<T> channels_of(const CausalConv& op) {
  return {.x = op.x.as<T>(),
          .y = op.y.as<T>(),
          .windows = op.windows.as<T>(),
          .weight = op.weight.as<float>(),
          .bias = op.bias.as<float>(),
          .before = nullptr,
          .after = nullptr,
          .span_begin = op.span_begin.as<std::int32_t>(),
          .read_slot = op.read_slot.as<std::int32_t>(),
          .write_slot = op.write_slot.as<std::int32_t>(),
          .spans = op.read_slot.dim(0),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .slot_stride = op.windows.row_stride,
          .width = op.weight.dim(1),
          .begin = 0,
          .end = op.y.dim(1)};
}

template <typename T>
ConvChannels<T> channels_of(const GatedConv& op) {
  const std::int64_t channels = op.y.dim(1);
  const CausalConv inner = {.x = op.x.columns(2 * channels, channels),
                            .weight = op.weight,
                            .bias = op.bias,
                            .windows = op.windows,
                            .span_begin = op.span_begin,
                            .read_slot = op.read_slot,
                            .write_slot = op.write_slot,
                            .y = op.y};
  ConvChannels<T> job = channels_of<T>(inner);
  job.before = op.x.as<T>();
  job.after = op.x.as<T>() + channels;
  return job;
}

/// The rules for an op's shapes and types; its tables aside.
void check_shapes(const Check& check, const CausalConv& op);
void check_shapes(const Check& check, const GatedConv& op);

/// All channels of `tokens` tokens, shared by the queue's threads.
void convolve(Queue& queue, const ConvChannels<float>& all, std::int64_t tokens);
void convolve(Queue& queue, const ConvChannels<bf16>& all, std::int64_t tokens);

}  // namespace hyb::kernels
