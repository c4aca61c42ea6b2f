#pragma once

#include <cstddef>
#include <cstring>

#include "core/base/dtype.h"
#include "kernels/bf16.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// Element i of published bytes (f32, bf16, f16 or f8_e4m3), which may be unaligned.
inline float published_value(const std::byte* bytes, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, bytes + i * 4, sizeof(value));
    return value;
  }
  if (dtype == DType::f8_e4m3) return e4m3_to_float(static_cast<std::uint8_t>(bytes[i]));
  std::uint16_t bits;
  std::memcpy(&bits, bytes + i * 2, sizeof(bits));
  return dtype == DType::bf16 ? to_float(bf16{bits}) : half_to_float(bits);
}

/// Element i of a published row, with its scale.
inline float published_value(const WeightRow& row, std::int64_t i) {
  const float value = published_value(row.bytes, row.dtype, i);
  if (row.scales == nullptr) return value;
  return value * published_value(row.scales, row.scale_dtype, i / row.column_block);
}

/// Writes element i as `dtype` (f32, or bf16 rounded to nearest) to bytes that may be unaligned.
inline void write_value(std::byte* bytes, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::f32) {
    std::memcpy(bytes + i * 4, &value, sizeof(value));
    return;
  }
  const bf16 rounded = to_bf16(value);
  std::memcpy(bytes + i * 2, &rounded, sizeof(rounded));
}

}  // namespace hyb::kernels
