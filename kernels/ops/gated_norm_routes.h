#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// Some rows of a GatedNorm.
template <typename T>
struct GatedNormRows {
  const T* x;
  const T* gate;
  T* y;
  const float* weight;
  std::int64_t rows, x_stride, gate_stride, y_stride;
  std::int64_t slices, width;  ///< a row is `slices` slices of `width`
  float eps;
  bool norm_first;
};

namespace avx2 {
void gated_norm_rows(const GatedNormRows<float>& job);
void gated_norm_rows(const GatedNormRows<bf16>& job);
}  // namespace avx2

namespace avx512 {
void gated_norm_rows(const GatedNormRows<float>& job);
void gated_norm_rows(const GatedNormRows<bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
