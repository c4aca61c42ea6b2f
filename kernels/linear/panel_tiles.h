#pragma once

#include <cstdint>

namespace hyb::kernels {

/// One panel times a few rows over a run of k:
///
///   sums[r][n] = (first ? 0 : sums[r][n]) + sum over k of rows[r][k] * panel[k][n]     n = 0..63
///
/// Each sum is one chain over ascending k (pairs of k), whatever `count` is, so that cutting k into
/// runs (of even length for bf16 and f16) and rows into tiles changes no bit. Rows are of the
/// panel's type; those of an f16 panel are f32, and their sums have the bits that an f32 panel with
/// the same numbers gives.
struct PanelTile {
  const void* const* rows;  ///< `count` pointers to the rows' first element of this run
  std::int64_t count;       ///< 1 to panel_tile_rows
  const void* panel;        ///< its first word of this run
  std::int64_t columns;     ///< length of the run; an odd one ends the rows
  float* sums;              ///< [count][64]
  bool first;
  const void* prefetch;         ///< start of the bytes that are needed next: hints, never read
  std::int64_t prefetch_lines;  ///< lines (64 bytes) of them to prefetch with every 256 bytes of
                                ///< the panel: 0 to 4
};

constexpr std::int64_t panel_tile_rows = 6;

void panel_tile_bf16_avx512(const PanelTile& tile);
void panel_tile_f32_avx512(const PanelTile& tile);
void panel_tile_f16_avx512(const PanelTile& tile);
void panel_tile_bf16_avx2(const PanelTile& tile);
void panel_tile_f32_avx2(const PanelTile& tile);
void panel_tile_f16_avx2(const PanelTile& tile);
void panel_tile_bf16_plain(const PanelTile& tile);
void panel_tile_f32_plain(const PanelTile& tile);
void panel_tile_f16_plain(const PanelTile& tile);

/// One row of 64 sums to where it belongs: y[n] = (add ? y[n] : 0) + scale * (sums[n] + bias[n]),
/// rounded once.
struct PanelRow {
  const float* sums;
  std::int64_t columns;  ///< 1 to 64 are written
  void* y;
  bool y_is_bf16;  ///< else f32
  bool add;
  float scale;
  const float* bias = nullptr;  ///< [columns], null: 0
};

void panel_row_avx512(const PanelRow& row);
void panel_row_avx2(const PanelRow& row);
void panel_row_plain(const PanelRow& row);

/// Storage of a group's scales. factors: as a signed byte, which counts an f16 that
/// scale_unit_columns columns share; the product is exact in f32. e4m3: as a byte of E4M3 from 0 to
/// 448, times an f32 of the row that is stored e4m3_unit times as large.
enum class ScaleType : std::uint8_t { f32, bf16, e8m0, f16, factors, e4m3 };
constexpr std::int64_t scale_unit_columns = 256;
/// Bits of E4M3, put where an f16 has them, are the number over 2^8; E2M1's levels are doubled.
constexpr float e4m3_unit = 128;

/// One panel of codes times a few rows of bf16 over a run of k that starts and ends with a group or
/// with K:
///
///   sums[r][n] = (first ? 0 : sums[r][n]) + sum over groups g of
///                scale[g][n] * (sum over k of g of rows[r][k] * level[k][n])
///                - min[g][n] * (sum over k of g of rows[r][k])                          n = 0..63
///
/// With zero points a minimum is scale[g][n] * zero[g][n].
/// A group's sum is one chain over ascending k (pairs of k) from 0, and so are the groups',
/// whatever `count` is and wherever the levels come from; what minima are multiplied with is given.
struct CodedTile {
  const void* const* rows;    ///< `count` pointers to the rows' first element of this run
  std::int64_t count;         ///< 1 to panel_tile_rows
  const void* groups;         ///< of the panel, the first one of this run
  std::int64_t columns;       ///< length of the run
  std::int64_t group;         ///< columns that share a scale
  std::int64_t group_bytes;   ///< from one group to the next
  std::int64_t scales_bytes;  ///< of a group, with the minima
  ScaleType scales;
  bool has_mins;
  bool has_zeros;                ///< with has_mins; 64 signed bytes at the end of a group's scales
  const void* units;             ///< of `factors`: of the run's first scale_unit_columns columns;
                                 ///< of e4m3 all of K's
  std::int64_t units_bytes;      ///< from there to the next ones
  const float* const* row_sums;  ///< with minima: `count` pointers to the sums of the rows' groups
  std::int64_t bits;             ///< of a code: 4, 5, 6 or 8
  bool has_lowest;               ///< of 8 bits: the sign alone is -128, and not zero
  const void* table;             ///< of levels, as codes.h makes them: LevelTable or byte_levels
  void* levels;        ///< room for the run's levels as a panel of bf16: [ceil(columns/2)][64][2]
  float* read_scales;  ///< room for the run's scales and minima in f32: [groups][64, or with minima
                       ///< 128]
  float* sums;         ///< [count][64]
  bool first;

  std::int64_t read_scales_per_group() const { return has_mins ? 128 : 64; }
};

/// Writes `levels` and `read_scales`, reads neither rows nor sums.
void read_levels_avx512(const CodedTile& tile);
void read_levels_avx2(const CodedTile& tile);
void read_levels_plain(const CodedTile& tile);

/// Writes `sums`, from levels and scales that have been read.
void coded_tile_avx512(const CodedTile& tile);
void coded_tile_avx2(const CodedTile& tile);
void coded_tile_plain(const CodedTile& tile);

/// The same straight from the codes, for up to coded_few_rows: the levels never leave the
/// registers.
constexpr std::int64_t coded_few_rows = 4;
void coded_few_avx512(const CodedTile& tile);

}  // namespace hyb::kernels
