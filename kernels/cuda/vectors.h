#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/ptx.h"
#include "kernels/floats.h"

/// F8_E4M3 on a card, several at a time. Included by .cu files only.
namespace hyb::kernels::cuda {

/// The highest bit of every byte that is NaN.
__device__ __forceinline__ std::uint32_t find_nan(std::uint32_t codes) {
  return ((codes & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U;
}

/// Two codes as bf16. Of NaN it makes 480.
template <int First>
__device__ __forceinline__ std::uint32_t widen_numbers(std::uint32_t codes) {
  constexpr std::uint32_t power = 0x7b807b80;  // 2^120: what the exponents' biases are apart
  return multiply_pairs(extend_bytes<First>(codes) << 4 & 0x87f087f0U, power);
}

/// Returns the bits that make NaN of that 480.
template <int First>
__device__ __forceinline__ std::uint32_t nan_bits(std::uint32_t codes) {
  return extend_bytes<First>(find_nan(codes)) & 0x7f807f80U;
}

/// Eight codes as bf16, NaN as 480.
__device__ __forceinline__ uint4 widen_finite(std::uint32_t low, std::uint32_t high) {
  return {widen_numbers<0>(low), widen_numbers<2>(low), widen_numbers<0>(high),
          widen_numbers<2>(high)};
}

/// Eight codes as bf16.
__device__ __forceinline__ uint4 widen(std::uint32_t low, std::uint32_t high) {
  uint4 numbers = widen_finite(low, high);
  if ((find_nan(low) | find_nan(high)) == 0) return numbers;
  numbers.x |= nan_bits<0>(low);
  numbers.y |= nan_bits<2>(low);
  numbers.z |= nan_bits<0>(high);
  numbers.w |= nan_bits<2>(high);
  return numbers;
}
/// Sixteen, the first eight and the last.
__device__ __forceinline__ void widen(uint4 codes, uint4& first, uint4& last) {
  first = widen(codes.x, codes.y);
  last = widen(codes.z, codes.w);
}

/// Four numbers, rounded as to_e4m3 does; the first is the lowest byte.
__device__ __forceinline__ std::uint32_t pack_e4m3(float a, float b, float c, float d) {
  return to_e4m3(a).bits | static_cast<std::uint32_t>(to_e4m3(b).bits) << 8 |
         static_cast<std::uint32_t>(to_e4m3(c).bits) << 16 |
         static_cast<std::uint32_t>(to_e4m3(d).bits) << 24;
}

/// Elements of T in 16 bytes.
template <typename T>
inline constexpr int vector_size = 16 / static_cast<int>(sizeof(T));

template <typename T>
inline bool is_vector_aligned(const T* data, std::int64_t row_stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && row_stride % vector_size<T> == 0;
}

__device__ __forceinline__ float round_to(float value, float) { return value; }
__device__ __forceinline__ bf16 round_to(float value, bf16) { return round_bf16(value); }
__device__ __forceinline__ e4m3 round_to(float value, e4m3) { return to_e4m3(value); }

/// Rounded once to T.
template <typename T>
__device__ __forceinline__ T rounded(float value) {
  return round_to(value, T{});
}

__device__ __forceinline__ void unpack(uint4 bytes, float (&values)[4]) {
  const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  for (int i = 0; i < 4; ++i) values[i] = std::bit_cast<float>(words[i]);
}
__device__ __forceinline__ void unpack(uint4 bytes, float (&values)[8]) {
  const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = std::bit_cast<float>(words[i] << 16);
    values[2 * i + 1] = std::bit_cast<float>(words[i] & 0xffff0000U);
  }
}
__device__ __forceinline__ uint4 pack(const float (&values)[4]) {
  return {std::bit_cast<unsigned>(values[0]), std::bit_cast<unsigned>(values[1]),
          std::bit_cast<unsigned>(values[2]), std::bit_cast<unsigned>(values[3])};
}
__device__ __forceinline__ uint4 pack(const float (&values)[8]) {
  return {pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]),
          pack_bf16(values[4], values[5]), pack_bf16(values[6], values[7])};
}

/// vector_size<T> elements in f32; of an unaligned row one by one, and what lies past `left`
/// elements is zero.
template <bool Aligned, typename T>
__device__ __forceinline__ void load_values(const T* from, int left,
                                            float (&values)[vector_size<T>]) {
  if constexpr (Aligned) {
    unpack(load16(from), values);
  } else {
    for (int i = 0; i < vector_size<T>; ++i) values[i] = i < left ? to_float(from[i]) : 0.0F;
  }
}
template <bool Aligned, typename T>
__device__ __forceinline__ void store_values(T* to, int left,
                                             const float (&values)[vector_size<T>]) {
  if constexpr (Aligned) {
    store16(to, pack(values));
  } else {
    for (int i = 0; i < vector_size<T> && i < left; ++i) to[i] = rounded<T>(values[i]);
  }
}

/// Eight elements of either type, for kernels that read one type and write another: as load_values
/// and store_values.
template <bool Aligned, typename T>
__device__ __forceinline__ void load_eight(const T* from, int left, float (&values)[8]) {
  static_assert(sizeof(T) > 1, "F8_E4M3 is written only");
  if constexpr (Aligned && vector_size<T> == 8) {
    unpack(load16(from), values);
  } else if constexpr (Aligned) {
    float halves[2][4];
    unpack(load16(from), halves[0]);
    unpack(load16(from + 4), halves[1]);
    for (int i = 0; i < 8; ++i) values[i] = halves[i / 4][i % 4];
  } else {
    for (int i = 0; i < 8; ++i) values[i] = i < left ? to_float(from[i]) : 0.0F;
  }
}
/// F8_E4M3, too, as 8 aligned bytes.
template <bool Aligned, typename T>
__device__ __forceinline__ void store_eight(T* to, int left, const float (&values)[8]) {
  if constexpr (Aligned && vector_size<T> == 16) {
    store8(to, {pack_e4m3(values[0], values[1], values[2], values[3]),
                pack_e4m3(values[4], values[5], values[6], values[7])});
  } else if constexpr (Aligned && vector_size<T> == 8) {
    store16(to, pack(values));
  } else if constexpr (Aligned) {
    store16(to, pack({values[0], values[1], values[2], values[3]}));
    store16(to + 4, pack({values[4], values[5], values[6], values[7]}));
  } else {
    for (int i = 0; i < 8 && i < left; ++i) to[i] = rounded<T>(values[i]);
  }
}

/// Four neighbours, aligned to all of them.
__device__ __forceinline__ void load_four(const float* from, float (&values)[4]) {
  unpack(load16(from), values);
}
__device__ __forceinline__ void load_four(const bf16* from, float (&values)[4]) {
  const uint2 words = load8(from);
  values[0] = std::bit_cast<float>(words.x << 16);
  values[1] = std::bit_cast<float>(words.x & 0xffff0000U);
  values[2] = std::bit_cast<float>(words.y << 16);
  values[3] = std::bit_cast<float>(words.y & 0xffff0000U);
}
__device__ __forceinline__ void store_four(float* to, const float (&values)[4]) {
  store16(to, pack(values));
}
__device__ __forceinline__ void store_four(bf16* to, const float (&values)[4]) {
  store8(to, {pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3])});
}

/// Says whether four neighbouring columns of a state's rows can be loaded together.
template <typename S>
bool has_fours(const S* state, std::int64_t slot_stride, std::int64_t columns) {
  return columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(state) % 16 == 0 &&
         slot_stride % 4 == 0;
}

/// Two neighbours, aligned to both.
__device__ __forceinline__ float2 load_pair(const float* from) {
  const uint2 pair = load8(from);
  return {std::bit_cast<float>(pair.x), std::bit_cast<float>(pair.y)};
}
__device__ __forceinline__ float2 load_pair(const bf16* from) {
  const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(from);
  return {std::bit_cast<float>(pair << 16), std::bit_cast<float>(pair & 0xffff0000U)};
}
__device__ __forceinline__ void store_pair(float* to, float a, float b) {
  store8(to, {std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b)});
}
__device__ __forceinline__ void store_pair(bf16* to, float a, float b) {
  *reinterpret_cast<std::uint32_t*>(to) = pack_bf16(a, b);
}

}  // namespace hyb::kernels::cuda
