#include "kernels/ops/conv_channels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/ops/share.h"

namespace hyb::kernels {
namespace {

/// What enters the convolution.
template <typename T>
T input_of(const ConvChannels<T>& job, std::int64_t t, std::int64_t channel) {
  const T x = job.x[t * job.x_stride + channel];
  if (job.before == nullptr) return x;
  return from_float<T>(to_float(job.before[t * job.x_stride + channel]) * to_float(x));
}

/// What becomes of a sum.
template <typename T>
T output_of(const ConvChannels<T>& job, std::int64_t t, std::int64_t channel, float sum) {
  if (job.before == nullptr) return from_float<T>(sum / (1.0F + std::exp(-sum)));
  const float gate = to_float(job.behind[t * job.x_stride + channel]);
  return from_float<T>(gate * to_float(from_float<T>(sum)));
}

/// One channel of one span. The last K-1 inputs stay in `window`.
template <typename T>
void convolve(const ConvChannels<T>& job, std::int64_t span, std::int64_t channel) {
  const auto history = static_cast<std::size_t>(job.width - 1);
  const float* const weight = job.weight + channel * job.width;
  const std::int64_t at = channel * (job.width - 1);
  std::array<T, conv_width_max> window{};
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

void convolve(Queue& queue, const ConvChannels<float>& all, std::int64_t tokens) {
  share_channels(queue, all, tokens);
}
void convolve(Queue& queue, const ConvChannels<bf16>& all, std::int64_t tokens) {
  share_channels(queue, all, tokens);
}

}  // namespace hyb::kernels
