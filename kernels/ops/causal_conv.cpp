#include "kernels/ops/causal_conv.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/causal_conv_routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t width_max = 4;

void check(const CausalConv& op, Device device) {
  const Check check("causal_conv", device);
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
void convolve(const ConvChannels<T>& job, std::int64_t span, std::int64_t channel) {
  const auto history = static_cast<std::size_t>(job.width - 1);
  const float* const weight = job.weight + channel * job.width;
  const std::int64_t at = channel * (job.width - 1);
  std::array<T, width_max> window{};
  if (const std::int32_t slot = job.read_slot[span]; slot >= 0) {
    std::copy_n(job.windows + slot * job.slot_stride + at, history, window.begin() + 1);
  }
  for (std::int64_t t = job.span_begin[span]; t < job.span_begin[span + 1]; ++t) {
    std::copy_n(window.begin() + 1, history, window.begin());
    window[history] = job.x[t * job.x_stride + channel];
    float sum = job.bias == nullptr ? 0.0F : job.bias[channel];
    for (std::size_t j = 0; j <= history; ++j) sum += weight[j] * to_float(window[j]);
    job.y[t * job.y_stride + channel] = from_float<T>(sum / (1.0F + std::exp(-sum)));
  }
  std::copy_n(window.begin() + 1, history,
              job.windows + job.write_slot[span] * job.slot_stride + at);
}

template <typename T>
void convolve_channels(Isa isa, const ConvChannels<T>& job) {
  if (isa == Isa::avx512) return avx512::convolve_channels(job);
  if (isa == Isa::avx2) return avx2::convolve_channels(job);
  for (std::int64_t span = 0; span < job.spans; ++span) {
    for (std::int64_t c = job.begin; c < job.end; ++c) convolve(job, span, c);
  }
}

}  // namespace

void causal_conv(Queue& queue, const CausalConv& op) {
  check(op, queue.device());
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::causal_conv(queue.stream(), op);
  }
  share(queue, op.x.dim(1), 64, 4 * op.x.dim(0), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      convolve_channels<T>(queue.isa(), {.x = op.x.as<T>(),
                                         .y = op.y.as<T>(),
                                         .windows = op.windows.as<T>(),
                                         .weight = op.weight.as<float>(),
                                         .bias = op.bias.as<float>(),
                                         .span_begin = op.span_begin.as<std::int32_t>(),
                                         .read_slot = op.read_slot.as<std::int32_t>(),
                                         .write_slot = op.write_slot.as<std::int32_t>(),
                                         .spans = op.read_slot.dim(0),
                                         .x_stride = op.x.row_stride,
                                         .y_stride = op.y.row_stride,
                                         .slot_stride = op.windows.row_stride,
                                         .width = op.weight.dim(1),
                                         .begin = begin,
                                         .end = end});
    });
  });
}

}  // namespace hyb::kernels
