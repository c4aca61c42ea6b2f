#pragma once

#include <cstdint>

namespace hyb::kernels {

/// One panel times a few rows over a run of k:
///
///   sums[r][n] = (first ? 0 : sums[r][n]) + sum over k of rows[r][k] * panel[k][n]     n = 0..63
///
/// Each sum is one chain over ascending k (pairs of k), whatever `count` is, so that cutting k into
/// runs (of even length for bf16) and rows into tiles changes no bit.
struct PanelTile {
  const void* const* rows;  ///< `count` pointers to the rows' first element of this run
  std::int64_t count;       ///< 1 to panel_tile_rows
  const void* panel;        ///< its first word of this run
  std::int64_t columns;     ///< length of the run; an odd one ends the rows
  float* sums;              ///< [count][64]
  bool first;
  const void* soon;         ///< where bytes begin that will be wanted next: hints, never read
  std::int64_t soon_lines;  ///< so many lines (64 bytes) of them to ask for at every word: 0 to 4
};

constexpr std::int64_t panel_tile_rows = 6;

void panel_tile_bf16_avx512(const PanelTile& tile);
void panel_tile_f32_avx512(const PanelTile& tile);
void panel_tile_bf16_avx2(const PanelTile& tile);
void panel_tile_f32_avx2(const PanelTile& tile);
void panel_tile_bf16_plain(const PanelTile& tile);
void panel_tile_f32_plain(const PanelTile& tile);

/// One row of 64 sums to where it belongs: y[n] = (add ? y[n] : 0) + scale * sums[n], rounded once.
struct PanelRow {
  const float* sums;
  std::int64_t columns;  ///< 1 to 64 are written
  void* y;
  bool y_is_bf16;  ///< else f32
  bool add;
  float scale;
};

void panel_row_avx512(const PanelRow& row);
void panel_row_avx2(const PanelRow& row);
void panel_row_plain(const PanelRow& row);

}  // namespace hyb::kernels
