#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/silu.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/conv_channels_routes.h"

/// The causal convolution of one token, channel by channel, as a part of a larger kernel: the bits
/// of causal_conv. Params has its x, conv_weight, conv_bias (null: none), windows, their strides
/// x_stride and window_stride, and taps.
namespace hyb::kernels::cuda {

inline constexpr int taps_max = static_cast<int>(conv_width_max);

/// One channel of the convolution, in a thread.
template <typename T>
struct ConvChannel {
  std::int64_t index;  ///< -1: none
  float weight[taps_max], bias;
  T window[taps_max - 1], x;  ///< what is left of the token, oldest first, and its own input

  __device__ __forceinline__ T tap(int j, int taps) const {
    return j + 1 < taps_max && j + 1 < taps ? window[j] : x;
  }
};

template <typename Params, typename T>
__device__ __forceinline__ void load_weights(const Params& p, ConvChannel<T>& channel) {
  if (channel.index < 0) return;
  channel.bias = p.conv_bias == nullptr ? 0.0F : p.conv_bias[channel.index];
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    channel.weight[j] = j < p.taps ? p.conv_weight[channel.index * p.taps + j] : 0.0F;
  }
}

template <typename Params, typename T>
__device__ __forceinline__ void load_taps(const Params& p, int token, std::int64_t slot,
                                          ConvChannel<T>& channel) {
  if (channel.index < 0) return;
  const T* const window =
      p.windows + (slot < 0 ? 0 : slot) * p.window_stride + channel.index * (p.taps - 1);
  channel.x = p.x[token * p.x_stride + channel.index];
#pragma unroll
  for (int j = 0; j + 1 < taps_max; ++j) {
    channel.window[j] = j + 1 < p.taps && slot >= 0 ? window[j] : T{};
  }
}

/// As causal_conv: from the bias upwards, one rounding per tap.
template <typename Params, typename T>
__device__ __forceinline__ float convolve(const Params& p, const ConvChannel<T>& channel) {
  if (channel.index < 0) return 0.0F;
  float sum = channel.bias;
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    if (j < p.taps) sum = fmaf(channel.weight[j], to_float(channel.tap(j, p.taps)), sum);
  }
  return to_float(rounded<T>(silu(sum)));
}

/// Moves the channel's window on by one token.
template <typename Params, typename T>
__device__ __forceinline__ void shift_window(const Params& p, std::int64_t slot,
                                             const ConvChannel<T>& channel) {
  T* const to = p.windows + slot * p.window_stride + channel.index * (p.taps - 1);
#pragma unroll
  for (int j = 0; j + 1 < taps_max; ++j) {
    if (j + 1 < p.taps) to[j] = channel.tap(j + 1, p.taps);
  }
}

}  // namespace hyb::kernels::cuda
