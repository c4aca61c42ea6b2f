#include "kernels/linear/panel_tiles.h"

#include <cstring>

#include "kernels/floats.h"

namespace hyb::kernels {
namespace {

/// The meaning of PanelTile, for rows of X and panels of W, of which `run` columns lie together.
template <typename X, typename W, std::int64_t run>
void tile_plain(const PanelTile& tile) {
  const W* const panel = static_cast<const W*>(tile.panel);
  for (std::int64_t r = 0; r < tile.count; ++r) {
    float* const sums = tile.sums + r * 64;
    for (int n = 0; n < 64 && tile.first; ++n) sums[n] = 0.0F;
    const X* const row = static_cast<const X*>(tile.rows[r]);
    for (std::int64_t k = 0; k < tile.columns; ++k) {
      const W* const column = panel + k / run * 64 * run + k % run;
      const float x = to_float(row[k]);
      for (int n = 0; n < 64; ++n) sums[n] += x * to_float(column[n * run]);
    }
  }
}

template <typename T>
void row_plain(const PanelRow& row) {
  T* const y = static_cast<T*>(row.y);
  for (std::int64_t n = 0; n < row.columns; ++n) {
    const float sum = row.bias == nullptr ? row.sums[n] : row.sums[n] + row.bias[n];
    const float scaled = row.scale * sum;
    y[n] = from_float<T>(row.add ? to_float(y[n]) + scaled : scaled);
  }
}

}  // namespace

void panel_tile_bf16_plain(const PanelTile& tile) { tile_plain<bf16, bf16, 2>(tile); }
void panel_tile_f32_plain(const PanelTile& tile) { tile_plain<float, float, 1>(tile); }
void panel_tile_f16_plain(const PanelTile& tile) { tile_plain<float, f16, 1>(tile); }

void panel_row_plain(const PanelRow& row) {
  if (row.y_is_bf16) return row_plain<bf16>(row);
  row_plain<float>(row);
}

namespace {

/// The bf16 of column k of an eight and output n, as CodedShape places it.
std::uint16_t level_of(const CodedTile& tile, const std::uint8_t* eight, int n, int k) {
  if (tile.bits < 8) {
    const auto upper_bits = static_cast<int>(tile.bits) - 4;
    const int at = upper_bits * (n / 16 * 4 + k / 2);
    std::uint16_t word, upper = 0;
    std::memcpy(&word, eight + n * 4 + k % 2 * 2, sizeof(word));
    if (upper_bits > 0) {
      std::memcpy(&upper, eight + 256 + at / 16 * 64 + n % 16 * 4 + k % 2 * 2, sizeof(upper));
    }
    const unsigned high = upper >> at % 16 & ((1U << upper_bits) - 1);
    return static_cast<const std::uint16_t*>(tile.table)[(word >> (k / 2 * 4) & 15U) | high << 4];
  }
  const auto* const low = static_cast<const std::uint8_t*>(tile.table);
  const int in_vector = n % 16 / 4 * 16 + k / 2 % 2 * 8 + n % 4 * 2 + k % 2;
  const unsigned code = eight[n / 16 * 128 + k / 4 * 64 + in_vector];
  const unsigned size = code & 0x7fU;
  if (tile.has_lowest && code == 0x80U) return to_bf16(-128.0F).bits;
  return static_cast<std::uint16_t>((low[128 + size] | (code & 0x80U)) << 8 | low[size]);
}

/// Returns a group's scale of output n, or with n from 64 on its minimum; `units` are of its
/// columns.
float scale_of(const CodedTile& tile, const std::byte* scales, const std::byte* units, int n) {
  if (tile.scales == ScaleType::factors) {
    f16 unit;
    std::memcpy(&unit, units + n * 2, sizeof(unit));
    return to_float(unit) * static_cast<float>(std::to_integer<std::int8_t>(scales[n]));
  }
  if (tile.scales == ScaleType::e4m3) {
    float unit;
    std::memcpy(&unit, units + n * 4, sizeof(unit));
    const unsigned bits = std::to_integer<unsigned>(scales[n]) << 7;
    return unit * to_float(f16{static_cast<std::uint16_t>(bits)});
  }
  if (tile.scales == ScaleType::f16) {
    f16 scale;
    std::memcpy(&scale, scales + n * 2, sizeof(scale));
    return to_float(scale);
  }
  if (tile.scales == ScaleType::e8m0) return e8m0_to_float(static_cast<std::uint8_t>(scales[n]));
  if (tile.scales == ScaleType::f32) {
    float scale;
    std::memcpy(&scale, scales + n * 4, sizeof(scale));
    return scale;
  }
  bf16 scale;
  std::memcpy(&scale, scales + n * 2, sizeof(scale));
  return to_float(scale);
}

void read_scales(const CodedTile& tile) {
  float* out = tile.read_scales;
  const auto* group = static_cast<const std::byte*>(tile.groups);
  for (std::int64_t k = 0; k < tile.columns; k += tile.group, group += tile.group_bytes) {
    const auto* const units =
        static_cast<const std::byte*>(tile.units) + k / scale_unit_columns * tile.units_bytes;
    for (int n = 0; n < 64; ++n) {
      out[n] = scale_of(tile, group, units, n);
      if (!tile.has_mins) continue;
      const auto zero = static_cast<std::int8_t>(group[tile.scales_bytes - 64 + n]);
      out[64 + n] =
          tile.has_zeros ? out[n] * static_cast<float>(zero) : scale_of(tile, group, units, 64 + n);
    }
    out += tile.read_scales_per_group();
  }
}

}  // namespace

void read_levels_plain(const CodedTile& tile) {
  read_scales(tile);
  const std::int64_t eight_bytes = tile.bits * 64;
  auto* const levels = static_cast<std::uint16_t*>(tile.levels);
  for (std::int64_t k = 0; k < (tile.columns + 1) / 2 * 2; ++k) {
    const auto* const group =
        static_cast<const std::uint8_t*>(tile.groups) + k / tile.group * tile.group_bytes;
    const auto* const eight = group + tile.scales_bytes + k % tile.group / 8 * eight_bytes;
    for (int n = 0; n < 64; ++n) {
      levels[k / 2 * 128 + n * 2 + k % 2] = level_of(tile, eight, n, static_cast<int>(k % 8));
    }
  }
}

void coded_tile_plain(const CodedTile& tile) {
  for (std::int64_t i = 0; tile.first && i < tile.count * 64; ++i) tile.sums[i] = 0.0F;
  for (std::int64_t k = 0; k < tile.columns; k += tile.group) {
    const void* rows[panel_tile_rows];
    float sums[panel_tile_rows * 64];
    for (std::int64_t r = 0; r < tile.count; ++r) {
      rows[r] = static_cast<const bf16*>(tile.rows[r]) + k;
    }
    const std::int64_t left = tile.columns - k;
    panel_tile_bf16_plain({.rows = rows,
                           .count = tile.count,
                           .panel = static_cast<const bf16*>(tile.levels) + k * 64,
                           .columns = left < tile.group ? left : tile.group,
                           .sums = sums,
                           .first = true,
                           .prefetch = nullptr,
                           .prefetch_lines = 0});
    const float* const scales = tile.read_scales + k / tile.group * tile.read_scales_per_group();
    for (std::int64_t i = 0; i < tile.count * 64; ++i) {
      tile.sums[i] += scales[i % 64] * sums[i];
      if (!tile.has_mins) continue;
      tile.sums[i] -= scales[64 + i % 64] * tile.row_sums[i / 64][k / tile.group];
    }
  }
}

}  // namespace hyb::kernels
