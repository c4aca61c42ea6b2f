#pragma once

#include <bit>
#include <cstdint>

#include "kernels/bf16.h"

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

/// An element of pages: a code whose scale is 1.
struct e4m3 {
  std::uint8_t bits;
};

constexpr float to_float(e4m3 value) { return e4m3_to_float(value.bits); }

/// Rounds to nearest, ties to even; what is larger than 448, infinity too, becomes 448; NaN stays
/// NaN.
constexpr e4m3 to_e4m3(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = all >> 24 & 0x80U, bits = all & 0x7fffffffU;
  std::uint32_t code = 0x7fU;
  if (bits < 0x3c800000U) {  // below 2^-6: steps of 2^-9, as an f32 has from 2^14 on
    const float stepped = std::bit_cast<float>(bits) + 0x1p14F;
    code = std::bit_cast<std::uint32_t>(stepped) - std::bit_cast<std::uint32_t>(0x1p14F);
  } else if (bits < 0x43e00000U) {  // below 448
    code = (bits + 0x7ffffU + (bits >> 20 & 1U) - (120U << 23)) >> 20;
  } else if (bits <= 0x7f800000U) {
    code = 0x7eU;
  }
  return {static_cast<std::uint8_t>(sign | code)};
}

template <>
constexpr e4m3 from_float<e4m3>(float value) {
  return to_e4m3(value);
}

}  // namespace hyb::kernels
