#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// SplitMix64: every counter gives an independent-looking 64-bit number.
constexpr std::uint64_t mix(std::uint64_t counter) {
  std::uint64_t z = counter + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// Uniform in [-1, 1), of the upper 24 bits.
constexpr float uniform(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
}

/// Made-up numbers, uniform in [-reach, reach): number i depends on nothing but the stream and i.
struct RandomNumbers {
  std::uint64_t stream = 0;
  float reach = 0;

  constexpr bf16 operator[](std::int64_t i) const {
    return to_bf16(reach * uniform(mix(stream + static_cast<std::uint64_t>(i))));
  }
  /// Those from number `first` on.
  constexpr RandomNumbers from(std::int64_t first) const {
    return {.stream = stream + static_cast<std::uint64_t>(first), .reach = reach};
  }
};

}  // namespace hyb::kernels
