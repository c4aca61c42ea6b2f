#pragma once

#include <array>
#include <cstdint>

#include "kernels/floats.h"
#include "kernels/weight_code.h"

namespace hyb::kernels {

/// The levels of the 16 codes of q4: closer together near zero, as weights are. Least squares over
/// normal and heavier-tailed (Student's t, 5) groups of 32, each divided by its element of largest
/// size, with 0 kept: the error is 7.5 % of normal weights' size, that of 16 even steps 8.1 %.
inline constexpr std::array<std::int8_t, 16> q4_levels = {-99, -75, -57, -43, -30, -19, -9,  0,
                                                          9,   19,  30,  43,  58,  77,  104, 127};

/// The level of a code, before its scale. Every one is a bf16 and no denormal.
///   fp8  F8_E4M3   q8  sign and size: -127..127   q4  q4_levels   mxfp4  E2M1
constexpr float level_of(WeightCode code, std::uint8_t bits) {
  if (code == WeightCode::fp8) return e4m3_to_float(bits);
  if (code == WeightCode::q4) return static_cast<float>(q4_levels[bits & 15U]);
  if (code == WeightCode::mxfp4) return e2m1_to_float(bits);
  const auto size = static_cast<float>(bits & 0x7fU);
  return (bits & 0x80U) != 0 ? -size : size;
}

/// Returns what separates the levels of q4.
constexpr std::array<float, 15> q4_midpoints() {
  std::array<float, 15> between = {};
  for (std::size_t i = 0; i < between.size(); ++i) {
    between[i] = 0.5F * static_cast<float>(q4_levels[i] + q4_levels[i + 1]);
  }
  return between;
}

/// The code whose level is nearest to a finite number.
constexpr std::uint8_t nearest_code(WeightCode code, float value) {
  if (code == WeightCode::fp8) return to_e4m3(value).bits;
  const float size = value < 0 ? -value : value;
  std::uint8_t nearest = 0;
  if (code == WeightCode::q4) {
    constexpr std::array<float, 15> midpoints = q4_midpoints();
    for (const float midpoint : midpoints) nearest += value > midpoint ? 1 : 0;
    return nearest;
  }
  if (code == WeightCode::q8) {
    nearest = static_cast<std::uint8_t>(size < 127.0F ? size + 0.5F : 127.0F);
    return static_cast<std::uint8_t>(nearest | (value < 0 && nearest > 0 ? 0x80U : 0U));
  }
  for (std::uint8_t i = 0; i < 7; ++i) {
    const float twice = e2m1_to_float(i) + e2m1_to_float(static_cast<std::uint8_t>(i + 1));
    nearest += size + size > twice ? 1 : 0;
  }
  return static_cast<std::uint8_t>(nearest | (value < 0 && nearest > 0 ? 8U : 0U));
}

/// The bf16 of all sizes of a code of 8 bits (without the sign, which is its highest bit), as two
/// tables of bytes; low first.
struct ByteLevels {
  alignas(64) std::array<std::uint8_t, 128> low, high;
};

constexpr ByteLevels byte_levels(WeightCode code) {
  ByteLevels levels = {};
  for (std::size_t i = 0; i < 128; ++i) {
    const std::uint16_t bits = to_bf16(level_of(code, static_cast<std::uint8_t>(i))).bits;
    levels.low[i] = static_cast<std::uint8_t>(bits & 0xffU);
    levels.high[i] = static_cast<std::uint8_t>(bits >> 8);
  }
  return levels;
}

inline constexpr ByteLevels fp8_levels = byte_levels(WeightCode::fp8);

/// The bf16 of a code of 4 to 6 bits by the code and any bits above it.
using LevelTable = std::array<std::uint16_t, 64>;

constexpr LevelTable nibble_levels(WeightCode code) {
  LevelTable levels = {};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    levels[i] = to_bf16(level_of(code, static_cast<std::uint8_t>(i % 16))).bits;
  }
  return levels;
}

}  // namespace hyb::kernels
