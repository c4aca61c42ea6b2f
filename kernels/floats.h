#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace hyb::kernels {

/// Brain float: the upper half of an f32.
struct bf16 {
  std::uint16_t bits;
};

constexpr float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
constexpr float to_float(float value) { return value; }

/// Rounds to nearest, ties to even; NaN stays NaN.
constexpr bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

template <typename T>
constexpr T from_float(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else {
    return value;
  }
}

/// IEEE half precision, as some published weights have it.
struct f16 {
  std::uint16_t bits;
};

/// Exact also where denormals are flushed.
constexpr float to_float(f16 half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = half.bits & 0x7fffU;
  std::uint32_t bits = (magnitude << 13) + (112U << 23);  // the exponent's bias: 127 instead of 15
  if (magnitude >= 0x7c00U) bits = 0x7f800000U | ((magnitude & 0x3ffU) << 13);
  if (magnitude < 0x400U)
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  return std::bit_cast<float>(sign | bits);
}

/// Rounds to nearest, ties to even; what is too large becomes infinity; NaN stays NaN.
constexpr f16 to_f16(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = all >> 16 & 0x8000U, bits = all & 0x7fffffffU;
  std::uint32_t half = 0x7e00U;
  if (bits < 0x38800000U) {  // below 2^-14: steps of 2^-24, as an f32 has from 1/2 on
    const float stepped = std::bit_cast<float>(bits) + 0.5F;
    half = std::bit_cast<std::uint32_t>(stepped) - std::bit_cast<std::uint32_t>(0.5F);
  } else if (bits < 0x477ff000U) {  // below what rounds to 65536
    half = (bits + 0xfffU + (bits >> 13 & 1U) - (112U << 23)) >> 13;
  } else if (bits <= 0x7f800000U) {
    half = 0x7c00U;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

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

/// The number of 4 bits of E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 by the lower three; the fourth is the
/// sign.
constexpr float e2m1_to_float(std::uint8_t bits) {
  const unsigned size = bits & 7U;
  const unsigned halves = size < 2 ? size : (2 + size % 2) << (size / 2 - 1);
  const float value = 0.5F * static_cast<float>(halves);
  return (bits & 8U) != 0 ? -value : value;
}

/// The power of two of E8M0, 2^(bits - 127); 255 is NaN.
constexpr float e8m0_to_float(std::uint8_t bits) {
  if (bits == 0) return std::bit_cast<float>(0x400000U);
  return std::bit_cast<float>(bits == 255 ? 0x7fc00000U : std::uint32_t{bits} << 23);
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
