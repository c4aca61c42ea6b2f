#pragma once

#include <bit>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/floats.h"
#include "kernels/linear/codes.h"
#include "kernels/weight_code.h"

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

/// Nearly normal, of deviation 2^16 / sqrt(3): the sum of four numbers of 16 bits. Sizes are 4 to
/// 131068, in steps of 8, so that any multiple has one of 16 neighbouring exponents (12 bits need
/// no patch), and is exact in f32 if its factor has 8 bits (a product may then be fused or not).
constexpr std::int32_t nearly_normal(std::uint64_t bits) {
  std::int32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int16_t>(bits >> (16 * i) & 0xffffU);
  return (sum & ~7) + 4;
}
inline constexpr std::int32_t nearly_normal_most = 131068;

/// Holds what made-up numbers are in codes: drawn ones times `unit`, to the nearest level, times
/// `scale`, which is the same for all groups.
struct RandomCoding {
  float unit;   ///< has 8 bits
  float scale;  ///< as it is stored: an f32, of q8 and q4 a bf16, of mxfp4 a power of two
};

/// Returns the coding of numbers that reach stretches as RandomNumbers has it.
constexpr RandomCoding random_coding(WeightCode code, float reach) {
  if (code == WeightCode::mxfp4) {  // the deviation becomes 1.4 to 2.8, of levels up to 6
    constexpr float half_deviation = 0.28867513F, root_two = 1.41421356F;
    const auto power = std::bit_cast<std::uint32_t>(reach * (half_deviation * root_two));
    const float scale = std::bit_cast<float>(power & 0x7f800000U);
    return {to_float(to_bf16(reach * 0x1p-16F / scale)), scale};
  }
  // The largest become the largest levels; those of q4 are for what 97 % of the numbers are below.
  const float unit = code == WeightCode::fp8  ? 448 * 0x1p-17F
                     : code == WeightCode::q8 ? 127 * 0x1p-17F
                                              : 144 * 0x1p-17F;
  const float scale = reach * (0x1p-16F / unit);
  return {unit, code == WeightCode::fp8 ? scale : to_float(to_bf16(scale))};
}

constexpr std::uint8_t random_code(WeightCode code, const RandomCoding& coding,
                                   std::int32_t drawn) {
  return nearest_code(code, coding.unit * static_cast<float>(drawn));
}

/// A scale of random_coding as the code stores it: its low 4, 2 or 1 bytes.
constexpr std::uint32_t scale_bits(WeightCode code, float scale) {
  const int dropped = code == WeightCode::fp8 ? 0 : code == WeightCode::mxfp4 ? 23 : 16;
  return std::bit_cast<std::uint32_t>(scale) >> dropped;
}

/// Made-up numbers as a trained matrix has them, nearly normal with deviation reach / sqrt(3), less
/// than 2 * reach: number i depends on nothing but the stream and i.
struct RandomNumbers {
  std::uint64_t stream = 0;
  float reach = 0;
  DType dtype = DType::bf16;  ///< of bf16, f16, f8_e4m3, or u8: MXFP4

  constexpr std::int32_t drawn(std::int64_t i) const {
    return nearly_normal(mix(stream + static_cast<std::uint64_t>(i)));
  }
  constexpr float operator[](std::int64_t i) const { return of(drawn(i)); }
  constexpr float of(std::int32_t number) const {
    if (dtype == DType::f8_e4m3) {
      const RandomCoding coding = random_coding(WeightCode::fp8, reach);
      return coding.scale * e4m3_to_float(random_code(WeightCode::fp8, coding, number));
    }
    if (dtype == DType::u8) {
      const RandomCoding coding = random_coding(WeightCode::mxfp4, reach);
      return coding.scale * e2m1_to_float(random_code(WeightCode::mxfp4, coding, number));
    }
    const float value = reach * (static_cast<float>(number) * 0x1p-16F);
    return dtype == DType::f16 ? to_float(to_f16(value)) : to_float(to_bf16(value));
  }

  /// Those from number `first` on.
  constexpr RandomNumbers from(std::int64_t first) const {
    return {.stream = stream + static_cast<std::uint64_t>(first), .reach = reach, .dtype = dtype};
  }
};

/// The first of the 16 neighbouring exponents that bf16 or f16 numbers have as bf16.
constexpr std::uint32_t random_exponent(const RandomNumbers& numbers) {
  const std::uint32_t last = to_bf16(numbers.of(nearly_normal_most)).bits >> 7;
  return last < 15 ? 0 : last - 15;
}

}  // namespace hyb::kernels
