#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/ptx.h"
#include "kernels/linear/gguf_rows.h"
#include "kernels/weight_code.h"

/// Blocks of GGUF files (GgufRowsShape) on their way to registers. Included by .cu files only.
namespace hyb::kernels::cuda {

/// Kernels read WeightCode::blocks and groups by the bits of their codes: there is one for each
/// number of bits, and one for NVFP4. GgufRowTraits, the same for a whole kernel, are what differs
/// between types of as many bits.
inline constexpr WeightCode blocks4 = WeightCode::blocks;
using WeightCode::blocks5, WeightCode::blocks6, WeightCode::blocks8, WeightCode::blocks_nvfp4;
constexpr bool is_blocks(WeightCode code) { return code == WeightCode::blocks || code >= blocks5; }
/// True where a lane's 16 codes are 8 bytes (and upper bits apart), else 16.
template <WeightCode Code>
inline constexpr bool packs_nibbles = has_nibbles(Code) || (is_blocks(Code) && Code != blocks8);
template <WeightCode Code>
inline constexpr bool has_upper_bits = Code == blocks5 || Code == blocks6;
/// True where 16 columns share a scale.
template <WeightCode Code>
inline constexpr bool has_sixteens = Code == blocks6 || Code == blocks_nvfp4;
template <WeightCode Code>
__device__ __forceinline__ bool has_mins(const GgufRowTraits& traits) {
  return (Code == blocks4 || Code == blocks5) && traits.has_mins != 0;
}

/// Says what a row has of half a chunk besides its codes: a word, or the first and the second of
/// blocks.
template <WeightCode Code>
inline constexpr bool has_second_word = is_blocks(Code) && Code != blocks8;
template <WeightCode Code>
using ScaleWords = std::conditional_t<has_second_word<Code>, uint2, std::uint32_t>;

/// Returns where these words are, and where the upper bits of lane q, counted in words of a row.
/// Where there is no second one it is any other.
template <WeightCode Code>
__device__ __forceinline__ int first_word(const GgufRowTraits& traits, int half) {
  return Code == blocks4 ? half >> traits.first_shift : half;
}
template <WeightCode Code>
__device__ __forceinline__ int second_word(const GgufRowTraits& traits, int half) {
  return traits.second_at + (half >> (Code == blocks6 ? 2 : traits.second_shift));
}
template <WeightCode Code>
__device__ __forceinline__ int upper_word(const GgufRowTraits& traits, int half, int q) {
  return traits.upper_at + (half >> (Code == blocks5 ? 1 : 0)) * 4 + q;
}

/// Holds the scales of a group. `other` is the scale of its last 16 columns where has_sixteens,
/// else the minimum.
struct GroupScales {
  float scale, other;
};
template <WeightCode Code>
__device__ __forceinline__ GroupScales block_scales(uint2 words, int half, int group,
                                                    const GgufRowTraits& traits) {
  const auto factor = [](std::uint32_t bytes, int i) {
    return static_cast<float>(static_cast<std::int8_t>(bytes >> (i * 8)));
  };
  const auto of_group = [&](std::uint32_t word) { return half_to_float(word >> (group * 16)); };
  if constexpr (Code == blocks8) {
    return {of_group(words.x), 0.0F};
  } else if constexpr (Code == blocks_nvfp4) {
    // Exponent and mantissa of E4M3 at the lower end of those of f32, 120 powers of two below.
    const auto scale = [&](int i) {
      const std::uint32_t code = words.x >> (group * 16 + i * 8) & 0x7fU;
      return std::bit_cast<float>(code << 20) * 0x1p120F * std::bit_cast<float>(words.y);
    };
    return {scale(0), scale(1)};
  } else if constexpr (Code == blocks6) {
    const float unit = half_to_float(words.y);
    return {unit * factor(words.x, group * 2), unit * factor(words.x, group * 2 + 1)};
  } else {
    if (traits.has_factors == 0) {
      const float scale = of_group(words.x), min = of_group(words.y);
      return {scale, traits.has_zeros != 0 ? scale * min : min};
    }
    const std::uint32_t factors = words.x >> ((half & traits.first_shift) * 16);
    return {half_to_float(words.y) * factor(factors, group),
            half_to_float(words.y >> 16) * factor(factors, 2 + group)};
  }
}

/// Eight levels of blocks without a table, from a lane's codes of a group: `low` and `high` as they
/// lie, and of 5 and 6 bits `upper`, whose lowest bits are the group's. A number below 128 is the
/// mantissa of 128 plus itself.
template <WeightCode Code>
__device__ __forceinline__ uint4 block_levels(std::uint32_t low, std::uint32_t high,
                                              std::uint32_t upper, const GgufRowTraits& traits) {
  const std::uint32_t base = traits.base;
  if constexpr (Code == blocks8) {
    const auto pair = [&](std::uint32_t bytes) {  // less 128, or 256 where the number is negative
      const std::uint32_t below = (bytes & 0x00800080U) | base;
      return multiply_add_pairs(below, 0xbf80bf80U, (bytes & 0x007f007fU) | base);
    };
    return {pair(low), pair(low >> 8), pair(high), pair(high >> 8)};
  } else {
    const auto pair = [&](int i) {
      std::uint32_t code = (low >> (i * 4) & 0x000f000fU) | base;
      if constexpr (Code == blocks5) code |= upper << (4 - i) & 0x00100010U;
      if constexpr (Code == blocks6)
        code |= (i < 2 ? upper << (4 - 2 * i) : upper >> (2 * i - 4)) & 0x00300030U;
      return multiply_add_pairs(code, 0x3f803f80U, traits.zero);
    };
    return {pair(0), pair(1), pair(2), pair(3)};
  }
}

/// The upper bits of a half, from their word.
template <WeightCode Code>
__device__ __forceinline__ std::uint32_t upper_of_half(std::uint32_t word, int half) {
  return Code == blocks5 ? word >> ((half & 1) * 8) : word;
}

/// A lane's x of 32 columns, of which its piece starts with `from`: the columns of its eight codes.
template <WeightCode Code>
inline constexpr int x_piece = has_sixteens<Code> ? 4 : 8;
template <WeightCode Code>
__device__ __forceinline__ uint4 load_x(const bf16* from) {
  if constexpr (!has_sixteens<Code>) return load16(from);
  const uint2 first = load8(from), last = load8(from + 16);
  return {first.x, first.y, last.x, last.y};
}

/// The sums of x over 32 columns, of tokens 2*(l%4) and 2*(l%4)+1: what minima are multiplied with.
struct PairOfSums {
  float of[2];
};
/// Ones, which stay in registers.
struct Ones {
  std::uint32_t pairs[4];
  __device__ Ones() {
    for (std::uint32_t& pair : pairs) pair = static_cast<std::uint32_t>(hidden(0x3f803f80));
  }
};
__device__ __forceinline__ PairOfSums sums_of_x(const Ones& ones, uint4 x) {
  float sums[4] = {};
  mma_bf16(sums, ones.pairs, x.x, x.y);
  mma_bf16(sums, ones.pairs, x.z, x.w);
  return {{sums[0], sums[1]}};
}

/// Adds the products of x with 32 columns of the levels of 16 rows, the lane's two of which have
/// these scales.
template <WeightCode Code>
__device__ __forceinline__ void add_group(uint4 low, uint4 high, const GroupScales (&scales)[2],
                                          uint4 x, float (&sums)[4]) {
  float part[4] = {};
  mma_bf16(part, {low.x, high.x, low.y, high.y}, x.x, x.y);
  if constexpr (has_sixteens<Code>) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += scales[i / 2].scale * part[i];
      part[i] = 0.0F;
    }
  }
  mma_bf16(part, {low.z, high.z, low.w, high.w}, x.z, x.w);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] += (has_sixteens<Code> ? scales[i / 2].other : scales[i / 2].scale) * part[i];
  }
}
__device__ __forceinline__ void subtract_mins(const GroupScales (&scales)[2],
                                              const PairOfSums& x_sums, float (&sums)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] -= scales[i / 2].other * x_sums.of[i % 2];
}

}  // namespace hyb::kernels::cuda
