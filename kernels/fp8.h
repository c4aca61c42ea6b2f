#pragma once

#include <bit>
#include <cstdint>

namespace hyb::kernels {

/// F8_E4M3 as published weights have it ("fn"): 4 bits of exponent with bias 7, 3 of mantissa, no
/// infinity, 0x7f and 0xff are NaN, the largest is 448. Exact also where denormals are flushed: a
/// bf16 holds every value as a normal number.
constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  std::uint32_t bits = (magnitude << 20) + (120U << 23);  // the exponent's bias: 127 instead of 7
  if (magnitude < 8) bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9F);
  if (magnitude == 0x7fU) bits = 0x7fc00000U;
  return std::bit_cast<float>(sign | bits);
}

}  // namespace hyb::kernels
