#pragma once

#include <cstddef>
#include <cstring>

#include "core/base/dtype.h"
#include "kernels/bf16.h"
#include "kernels/half.h"

namespace hyb::kernels {

/// Element i of published bytes (f32, bf16 or f16), which may be unaligned.
inline float published_value(const std::byte* bytes, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, bytes + i * 4, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes + i * 2, sizeof(bits));
  return dtype == DType::bf16 ? to_float(bf16{bits}) : half_to_float(bits);
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
