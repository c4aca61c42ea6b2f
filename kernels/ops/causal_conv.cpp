#include "kernels/ops/causal_conv.h"

#include <array>
#include <cmath>

#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t width_max = 4;

void check(const CausalConv& op) {
  const Check check("causal_conv");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.weight.rank == 2, "weight is a matrix", op.weight.rank);
  const std::int64_t tokens = op.x.dim(0), channels = op.x.dim(1), width = op.weight.dim(1);
  check.that(width >= 2 && width <= width_max, "K is 2, 3 or 4", width);
  check.tensor(op.weight, "weight", DType::f32, {channels, width});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {channels});
  check.tensor(op.windows, "windows", op.x.dtype, {op.windows.dim(0), channels, width - 1});
  check.tensor(op.y, "y", op.x.dtype, {tokens, channels});
  check.that(op.y.data != op.x.data, "y is not x", 0);
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, tokens), op.windows.dim(0));
}

/// One channel of one span. The last K-1 inputs stay in `window`.
template <typename T>
void convolve(const CausalConv& op, std::int64_t span, std::int64_t channel) {
  const std::int64_t width = op.weight.dim(1);
  const float* const weight = op.weight.as<float>() + channel * width;
  const float bias = op.bias.empty() ? 0.0F : op.bias.as<float>()[channel];
  const std::int32_t from = op.read_slot.as<std::int32_t>()[span];
  std::array<T, width_max> window{};
  for (std::int64_t j = 0; j + 1 < width && from >= 0; ++j) {
    window[static_cast<std::size_t>(j + 1)] = op.windows.row<T>(from)[channel * (width - 1) + j];
  }
  const auto* const begin = op.span_begin.as<std::int32_t>() + span;
  for (std::int64_t t = begin[0]; t < begin[1]; ++t) {
    for (std::size_t j = 0; j + 1 < static_cast<std::size_t>(width); ++j) window[j] = window[j + 1];
    window[static_cast<std::size_t>(width - 1)] = op.x.row<T>(t)[channel];
    float sum = bias;
    for (std::int64_t j = 0; j < width; ++j) {
      sum += weight[j] * to_float(window[static_cast<std::size_t>(j)]);
    }
    op.y.row<T>(t)[channel] = from_float<T>(sum / (1.0F + std::exp(-sum)));
  }
  T* const last = op.windows.row<T>(op.write_slot.as<std::int32_t>()[span]);
  for (std::int64_t j = 0; j + 1 < width; ++j) {
    last[channel * (width - 1) + j] = window[static_cast<std::size_t>(j + 1)];
  }
}

}  // namespace

void causal_conv(Queue& queue, const CausalConv& op) {
  check(op);
  const std::int64_t spans = op.read_slot.dim(0);
  share(queue, op.x.dim(1), 64, 4 * op.x.dim(0), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t span = 0; span < spans; ++span) {
        for (std::int64_t channel = begin; channel < end; ++channel) {
          convolve<T>(op, span, channel);
        }
      }
    });
  });
}

}  // namespace hyb::kernels
