#include "kernels/ops/conv.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

bool is_width(std::int64_t width) { return width >= 2 && width <= conv_width_max; }

/// A row of x has `inputs` values for every channel.
template <typename Op>
void check_channels(const Check& check, const Op& op, std::int64_t inputs) {
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.weight.rank == 2, "weight is a matrix", op.weight.rank);
  const std::int64_t tokens = op.x.dim(0), channels = op.weight.dim(0), width = op.weight.dim(1);
  check.tensor(op.x, "x", op.x.dtype, {tokens, inputs * channels});
  check.tensor(op.weight, "weight", DType::f32, {channels, width});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {channels});
  check.tensor(op.windows, "windows", op.x.dtype, {op.windows.dim(0), channels, width - 1});
  check.tensor(op.y, "y", op.x.dtype, {tokens, channels});
  check.that(op.y.data != op.x.data, "y is not x", 0);
}

/// Returns what enters the convolution.
template <typename T>
T input_of(const ConvChannels<T>& job, std::int64_t t, std::int64_t channel) {
  const T x = job.x[t * job.x_stride + channel];
  if (job.before == nullptr) return x;
  return from_float<T>(to_float(job.before[t * job.x_stride + channel]) * to_float(x));
}

/// Returns what becomes of a sum.
template <typename T>
T output_of(const ConvChannels<T>& job, std::int64_t t, std::int64_t channel, float sum) {
  if (job.before == nullptr) return from_float<T>(sum / (1.0F + std::exp(-sum)));
  const float gate = to_float(job.after[t * job.x_stride + channel]);
  return from_float<T>(gate * to_float(from_float<T>(sum)));
}

/// One channel of one span. The last K-1 inputs stay in `window`.
template <typename T>
void convolve(const ConvChannels<T>& job, std::int64_t span, std::int64_t channel) {
  const auto history = static_cast<std::size_t>(job.width - 1);
  const float* const weight = job.weight + channel * job.width;
  const std::int64_t at = channel * (job.width - 1);
  std::array<T, short_conv_width_max> window{};
  if (const std::int32_t slot = job.read_slot[span]; slot >= 0) {
    std::copy_n(job.windows + slot * job.slot_stride + at, history, window.begin() + 1);
  }
  for (std::int64_t t = job.span_begin[span]; t < job.span_begin[span + 1]; ++t) {
    std::copy_n(window.begin() + 1, history, window.begin());
    window[history] = input_of(job, t, channel);
    float sum = job.bias == nullptr ? 0.0F : job.bias[channel];
    for (std::size_t j = 0; j <= history; ++j) sum += weight[j] * to_float(window[j]);
    job.y[t * job.y_stride + channel] = output_of(job, t, channel, sum);
  }
  if (const std::int32_t slot = job.write_slot[span]; slot >= 0) {
    std::copy_n(window.begin() + 1, history, job.windows + slot * job.slot_stride + at);
  }
}

template <typename T>
void convolve_channels(Isa isa, const ConvChannels<T>& job) {
  if (run_vectors(isa, job)) return;
  for (std::int64_t span = 0; span < job.spans; ++span) {
    for (std::int64_t c = job.begin; c < job.end; ++c) convolve(job, span, c);
  }
}

template <typename T>
void share_channels(Queue& queue, const ConvChannels<T>& all, std::int64_t tokens) {
  share(queue, all.end, 64, 4 * tokens, [&](std::int64_t begin, std::int64_t end) {
    ConvChannels<T> job = all;
    job.begin = begin;
    job.end = end;
    convolve_channels(queue.isa(), job);
  });
}

}  // namespace

void check_shapes(const Check& check, const CausalConv& op) {
  check_channels(check, op, 1);
  check.that(is_width(op.weight.dim(1)), "K is 2, 3 or 4", op.weight.dim(1));
}
void check_shapes(const Check& check, const GatedConv& op) {
  check_channels(check, op, 3);
  const std::int64_t width = op.weight.dim(1);
  check.that(is_width(width) || width == short_conv_width_max, "K is 2, 3, 4 or 7", width);
}

void convolve(Queue& queue, const ConvChannels<float>& all, std::int64_t tokens) {
  share_channels(queue, all, tokens);
}
void convolve(Queue& queue, const ConvChannels<bf16>& all, std::int64_t tokens) {
  share_channels(queue, all, tokens);
}

void causal_conv(Queue& queue, const CausalConv& op) {
  const Check check("causal_conv", queue.device());
  check_shapes(check, op);
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, op.x.dim(0)),
              op.windows.dim(0));
  if (on_card(queue, [&](auto& stream) { cuda::causal_conv(stream, op); })) return;
  visit_float(op.x.dtype,
              [&]<typename T>(Tag<T>) { convolve(queue, channels_of<T>(op), op.x.dim(0)); });
}

void gated_conv(Queue& queue, const GatedConv& op) {
  const Check check("gated_conv", queue.device());
  check_shapes(check, op);
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, op.x.dim(0)),
              op.windows.dim(0));
  if (on_card(queue, [&](auto& stream) { cuda::gated_conv(stream, op); })) return;
  visit_float(op.x.dtype,
              [&]<typename T>(Tag<T>) { convolve(queue, channels_of<T>(op), op.x.dim(0)); });
}

}  // namespace hyb::kernels
