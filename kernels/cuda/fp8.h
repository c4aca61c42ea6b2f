#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.h"
#include "kernels/fp8.h"

/// F8_E4M3 on a card: kernels/fp8.h, several at a time. Included by .cu files only.
namespace hyb::kernels::cuda {

/// The highest bit of every byte that stands for NaN.
__device__ __forceinline__ std::uint32_t find_nan(std::uint32_t codes) {
  return ((codes & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U;
}

/// Bytes First and First + 1 as the upper bytes of a word's halves.
template <int First>
__device__ __forceinline__ std::uint32_t spread(std::uint32_t bytes) {
  return permute_bytes(bytes, 0, First == 0 ? 0x1404 : 0x3424);
}

/// Two codes as bf16. Of NaN it makes 480.
template <int First>
__device__ __forceinline__ std::uint32_t widen_numbers(std::uint32_t codes) {
  constexpr std::uint32_t power = 0x7b807b80;  // 2^120: what the exponents' biases are apart
  const std::uint32_t halves = spread<First>(codes);
  return multiply_pairs((halves & 0x80008000U) | (halves >> 4 & 0x07f007f0U), power);
}

/// What makes NaN of that 480.
template <int First>
__device__ __forceinline__ std::uint32_t nan_bits(std::uint32_t codes) {
  return (spread<First>(find_nan(codes)) >> 15) * 0x7fc0U;
}

/// Sixteen codes as bf16, the first eight and the last.
__device__ __forceinline__ void widen(uint4 codes, uint4& first, uint4& last) {
  first = {widen_numbers<0>(codes.x), widen_numbers<2>(codes.x), widen_numbers<0>(codes.y),
           widen_numbers<2>(codes.y)};
  last = {widen_numbers<0>(codes.z), widen_numbers<2>(codes.z), widen_numbers<0>(codes.w),
          widen_numbers<2>(codes.w)};
  if ((find_nan(codes.x) | find_nan(codes.y) | find_nan(codes.z) | find_nan(codes.w)) == 0) return;
  first.x |= nan_bits<0>(codes.x);
  first.y |= nan_bits<2>(codes.x);
  first.z |= nan_bits<0>(codes.y);
  first.w |= nan_bits<2>(codes.y);
  last.x |= nan_bits<0>(codes.z);
  last.y |= nan_bits<2>(codes.z);
  last.z |= nan_bits<0>(codes.w);
  last.w |= nan_bits<2>(codes.w);
}

/// Four numbers, rounded as to_e4m3 does; the first is the lowest byte.
__device__ __forceinline__ std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  return to_e4m3(a).bits | static_cast<std::uint32_t>(to_e4m3(b).bits) << 8 |
         static_cast<std::uint32_t>(to_e4m3(c).bits) << 16 |
         static_cast<std::uint32_t>(to_e4m3(d).bits) << 24;
}

}  // namespace hyb::kernels::cuda
