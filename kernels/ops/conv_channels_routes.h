#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

inline constexpr std::int64_t conv_width_max = 4;

/// What causal_conv and short_conv have in common, for channels begin .. end-1 in every span. The
/// convolved inputs are x, or where there are gates `before` * x, rounded to T; behind the sum
/// stands silu, or the product of the sum, rounded to T, with `behind`.
template <typename T>
struct ConvChannels {
  const T* x;
  T* y;
  T* windows;
  const float* weight;
  const float* bias;  ///< null: none
  const T* before;    ///< beside x, and so is `behind`; both null: no gates
  const T* behind;
  const std::int32_t* span_begin;
  const std::int32_t* read_slot;
  const std::int32_t* write_slot;
  std::int64_t spans, x_stride, y_stride, slot_stride;
  std::int64_t width, begin, end;
};

namespace avx2 {
void convolve_channels(const ConvChannels<float>& job);
void convolve_channels(const ConvChannels<bf16>& job);
}  // namespace avx2

namespace avx512 {
void convolve_channels(const ConvChannels<float>& job);
void convolve_channels(const ConvChannels<bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
