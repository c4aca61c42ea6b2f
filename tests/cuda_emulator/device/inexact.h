#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace emulator {

/// A card's fast functions and matrix instructions are less exact than the emulator's. While this
/// holds, functions are as far off as their contracts in kernels/cuda/ptx.h allow, up or down by
/// the bits of their result, and sums of matrix instructions are truncated.
/// HYB_EMULATED_NUMBERS=worst in the environment sets it for a whole run of the tests.
inline bool is_inexact = [] {
  const char* const wanted = std::getenv("HYB_EMULATED_NUMBERS");
  return wanted != nullptr && wanted == std::string_view("worst");
}();

/// The value, or a number that differs from it by `ulps` units in the last place.
inline float off_by(float value, float ulps) {
  if (!is_inexact || !std::isnormal(value)) return value;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float ulp = std::bit_cast<float>(bits & 0x7f800000U) * 0x1p-23F;
  return (bits * 2654435761U >> 31) != 0 ? value + ulps * ulp : value - ulps * ulp;
}

}  // namespace emulator
