#pragma once

#include "kernels/linear/codes.h"
#include "kernels/ops/attention_products.h"
#include "kernels/ops/kv_operand.h"

/// The keys and values of one tile as both products take them. Included behind byte_levels_*.h.
namespace hyb::kernels {
namespace {

/// As they stand in the pages.
template <typename K>
struct TileOperands {
  /// `soon` is called for what comes next.
  template <typename Soon>
  const TilePages<K>& of(const TilePages<K>& pages, std::int64_t, Soon) {
    return pages;
  }
};

/// Codes are widened tile by tile, once for all rows: what comes from memory is the codes. They lie
/// in pieces too short for the machine to foresee, so the next tile's are asked for meanwhile.
template <>
struct TileOperands<e4m3> {
  static constexpr std::int64_t head_dim_max = 512;
  static constexpr std::int64_t codes = segment_keys * 2;  ///< of a unit and segment, side by side

  template <typename Soon>
  const TilePages<bf16>& of(const TilePages<e4m3>& pages, std::int64_t head_dim, Soon soon) {
    const std::int64_t size = segment_keys * head_dim;
    const TilePages<e4m3> next = soon();
    for (int i = 0; i < tile_segments; ++i) {
      widen(pages.keys[i], next.keys[i], pages.key_stride, head_dim / 2, keys + i * size);
      widen(pages.values[i], next.values[i], codes, head_dim / 2, values + i * size);
      tile.keys[i] = keys + i * size;
      tile.values[i] = values + i * size;
    }
    tile.key_stride = codes;
    tile.value_stride = 2 * head_dim;
    return tile;
  }

  /// `count` times `codes`, `stride` apart, to places behind each other. An odd one is followed by
  /// a copy of it.
  void widen(const e4m3* from, const e4m3* soon, std::int64_t stride, std::int64_t count,
             bf16* to) {
    for (std::int64_t i = 0; i < count; i += 2) {
      prefetch(soon + i * stride);
      if (stride > codes) prefetch(soon + (i + 1) * stride);
      const e4m3* const a = from + i * stride;
      lookup.widen(a, i + 1 < count ? a + stride : a, to + i * codes);
    }
  }

  ByteLookup lookup{&fp8_levels};
  TilePages<bf16> tile;
  alignas(64) bf16 keys[tile_keys * head_dim_max + codes], values[tile_keys * head_dim_max + codes];
};

}  // namespace
}  // namespace hyb::kernels
