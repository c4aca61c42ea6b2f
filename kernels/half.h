#pragma once

#include <bit>
#include <cstdint>

namespace hyb::kernels {

/// IEEE half precision, as some published weights have it. Exact also where denormals are flushed.
constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  std::uint32_t bits = (magnitude << 13) + (112U << 23);  // the exponent's bias: 127 instead of 15
  if (magnitude >= 0x7c00U) bits = 0x7f800000U | ((magnitude & 0x3ffU) << 13);
  if (magnitude < 0x400U)
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  return std::bit_cast<float>(sign | bits);
}

}  // namespace hyb::kernels
