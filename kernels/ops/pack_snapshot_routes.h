#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace hyb::kernels {

/// Some rows of one piece, in the slot and packed.
template <typename T>
struct SnapshotRows {
  T* state;
  bf16* scales;
  std::int8_t* values;
  std::int64_t rows, columns;
};

namespace {

/// The scale of a row from the bits of its largest magnitude; NaN where that is 2^127 or more.
constexpr bf16 snapshot_scale(std::uint32_t largest_bits) {
  constexpr std::uint32_t limit = 0x7f000000, scale_min = 0x0080;  // 2^127, 2^-126
  if (largest_bits >= limit) return {0x7fc0};
  const auto quotient =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, largest_bits) / 127.0F);
  const std::uint32_t up = (quotient + 0xffff) >> 16;
  return {static_cast<std::uint16_t>(up < scale_min ? scale_min : up)};
}

constexpr float snapshot_scale_value(bf16 scale) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(scale.bits) << 16);
}

}  // namespace

namespace avx2 {
void pack_rows(const SnapshotRows<const float>& job);
void pack_rows(const SnapshotRows<const bf16>& job);
void unpack_rows(const SnapshotRows<float>& job);
void unpack_rows(const SnapshotRows<bf16>& job);
}  // namespace avx2

namespace avx512 {
void pack_rows(const SnapshotRows<const float>& job);
void pack_rows(const SnapshotRows<const bf16>& job);
void unpack_rows(const SnapshotRows<float>& job);
void unpack_rows(const SnapshotRows<bf16>& job);
}  // namespace avx512

}  // namespace hyb::kernels
