#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// Some rows of an RmsNorm.
template <typename T>
struct RmsNormRows {
  const T* x;
  T* y;
  const float* weight;
  std::int64_t rows, x_stride, y_stride;
  std::int64_t slices, width;  ///< a row is `slices` slices of `width`
  float eps, weight_offset;
};

namespace avx2 {
void rms_norm_rows(const RmsNormRows<float>& job);
void rms_norm_rows(const RmsNormRows<bf16>& job);
}  // namespace avx2

namespace avx512 {
void rms_norm_rows(const RmsNormRows<float>& job);
void rms_norm_rows(const RmsNormRows<bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
