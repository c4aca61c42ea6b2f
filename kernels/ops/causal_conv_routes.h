#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// Channels begin .. end-1 of a CausalConv, in every span.
template <typename T>
struct ConvChannels {
  const T* x;
  T* y;
  T* windows;
  const float* weight;
  const float* bias;  ///< null: none
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
