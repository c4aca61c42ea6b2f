#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/dtype.h"
#include "kernels/linear/panel_tiles.h"
#include "kernels/weight.h"
#include "kernels/weight_code.h"

namespace hyb::kernels {

/// The layout of the panels of WeightFormat::panels. A panel is lines of 256 bytes, which are as
/// many columns k of 64 outputs as they have room for; elements of neighbouring k that lie together
/// are a run: [line][column of the line / run][64][run].
struct PanelShape {
  std::int64_t panels;  ///< per expert
  std::int64_t lines;   ///< of a panel
  std::int64_t value_bytes;
  std::int64_t run;  ///< 2 of bf16, which the instructions multiply in pairs, else 1

  static constexpr std::int64_t line_bytes = Weight::panel_rows * 4;
  std::int64_t panel_bytes() const { return lines * line_bytes; }
  std::int64_t expert_bytes() const { return panels * panel_bytes(); }
  std::int64_t run_bytes() const { return run * value_bytes; }
  /// From a run to the next one of the same output.
  std::int64_t run_stride() const { return Weight::panel_rows * run_bytes(); }
};

inline PanelShape panel_shape(DType dtype, std::int64_t rows, std::int64_t columns) {
  const auto value_bytes = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t in_line = 4 / value_bytes;
  return {.panels = (rows + Weight::panel_rows - 1) / Weight::panel_rows,
          .lines = (columns + in_line - 1) / in_line,
          .value_bytes = value_bytes,
          .run = dtype == DType::bf16 ? 2 : 1};
}

/// Writes panel `panel` of all experts' to `out`, which holds panel_bytes().
void pack_panel_of(const WeightSource& source, DType dtype, std::int64_t panel, std::byte* out);

/// Writes all panels of a source to `out`, which holds experts * expert_bytes().
void pack_panels(Queue& queue, const WeightSource& source, DType dtype, std::byte* out);

/// The layout of a weight with codes on a card. An expert is the codes of all its rows, then
/// the scales of all its rows; a row is chunks of 128 columns, the last one filled up with codes of
/// 0. Of each half of a chunk, two groups of 32 columns, one of 4 lanes q of a matrix instruction
/// takes columns 8q to 8q+7 of both groups, which lie together:
///   codes   4 bits  64 bytes of a chunk   [half][q][group][8], a byte's first code in its low bits
///           8 bits  128 bytes             [half][q][group][8]
///   scales  bf16, 4 of a chunk; of mxfp4 4 bytes; with fp8 one f32, which is NaN where one of its
///           codes is
struct CodedRowsShape {
  WeightCode code;
  std::int64_t rows, columns;  ///< of an expert

  static constexpr std::int64_t chunk_columns = 128;
  static constexpr std::int64_t group_columns = 32;  ///< of a scale; with fp8 that is the chunk
  static constexpr std::int64_t groups = chunk_columns / group_columns;

  static constexpr std::int64_t chunk_bytes(WeightCode code) {
    return has_nibbles(code) ? chunk_columns / 2 : chunk_columns;
  }
  static constexpr std::int64_t chunk_scale_bytes(WeightCode code) {
    return code == WeightCode::fp8 || code == WeightCode::mxfp4 ? 4 : groups * 2;
  }
  std::int64_t chunks() const { return (columns + chunk_columns - 1) / chunk_columns; }
  std::int64_t row_bytes() const { return chunks() * chunk_bytes(code); }
  std::int64_t row_scale_bytes() const { return chunks() * chunk_scale_bytes(code); }
  std::int64_t codes_bytes() const { return rows * row_bytes(); }
  std::int64_t expert_bytes() const {
    return codes_bytes() + (rows * row_scale_bytes() + 15) / 16 * 16;
  }
};

/// Place of column k in the codes of its chunk, counted in codes.
constexpr std::int64_t place_in_chunk(std::int64_t k) {
  return k / 64 * 64 + k % 32 / 8 * 16 + k % 64 / 32 * 8 + k % 8;
}

/// The layout of the panels of a weight with codes. A panel is 64 outputs by all columns, as
/// groups of columns one after another: first the group's 64 scales (and then its 64 minima), then
/// its columns by eights, the last one filled up with codes of 0. Where scales are whole numbers,
/// what they count comes first: for every 256 columns 64 f16 (and 64 of the minima); where they are
/// E4M3, 64 f32. Eight columns
/// k of 16 outputs n are
///   8 bits  128 bytes  [k/4][n%16/4][k/2%2][n%4][k%2]: a lane's low and high 8 bytes, each
///                      widened to 16 bits, are two vectors of pairs of k
///   4 bits  64 bytes   [n][k%2] words of 16 bits, k/2 counting their codes from the low end
/// and the four sixteenths of the outputs follow one another. Codes of 5 and 6 bits are their lower
/// 4 bits so, and then their upper b = 1 or 2: words of 16 bits, [b * (n/16) / 4][n%16][k%2],
/// from bit b * (n/16 * 4 + k/2) of a word on, counted modulo its 16.
struct CodedShape {
  WeightCode code;
  std::int64_t panels;            ///< per expert
  std::int64_t columns;           ///< K
  std::int64_t group;             ///< columns that share a scale, a multiple of 8
  GgufType type = GgufType::f32;  ///< of blocks
  std::int64_t bits = 8;          ///< of a code: 4, 5, 6 or 8
  ScaleType scales = ScaleType::bf16;
  bool has_mins = false;
  bool has_zeros = false;  ///< with has_mins: zero points instead of minima, a signed byte each

  std::int64_t scale_bytes() const {
    if (scales == ScaleType::f32) return 4;
    return scales == ScaleType::bf16 || scales == ScaleType::f16 ? 2 : 1;
  }
  /// Returns the bytes of a group, with the minima.
  std::int64_t scales_bytes() const {
    return (has_zeros ? scale_bytes() + 1 : vectors() * scale_bytes()) * Weight::panel_rows;
  }
  /// Returns the bytes of 256 columns, with the minima.
  std::int64_t units_bytes() const {
    return scales == ScaleType::factors ? vectors() * 2 * Weight::panel_rows : 0;
  }
  /// Returns the bytes of eight columns.
  std::int64_t eight_bytes() const { return bits * Weight::panel_rows; }
  std::int64_t groups() const { return (columns + group - 1) / group; }
  /// From the panel's start to its first group.
  std::int64_t groups_offset() const {
    if (scales == ScaleType::e4m3) return 4 * Weight::panel_rows;
    return (columns + scale_unit_columns - 1) / scale_unit_columns * units_bytes();
  }
  std::int64_t group_bytes() const { return scales_bytes() + group / 8 * eight_bytes(); }
  std::int64_t panel_bytes() const {
    return groups_offset() + groups() * scales_bytes() + (columns + 7) / 8 * eight_bytes();
  }
  std::int64_t expert_bytes() const { return panels * panel_bytes(); }

 private:
  std::int64_t vectors() const { return has_mins ? 2 : 1; }
};

/// Columns of a group that hold numbers.
inline std::int64_t columns_of(const CodedShape& shape, std::int64_t g) {
  return std::min(shape.group, shape.columns - g * shape.group);
}

CodedShape coded_shape(WeightCode code, std::int64_t rows, std::int64_t columns,
                       std::int64_t group);

CodedShape coded_shape(const GroupCodes& codes, std::int64_t rows, std::int64_t columns);

/// Returns the shape of a weight in panels.
CodedShape coded_shape(const Weight& weight);

/// Columns that share a scale where `source` is stored by `code`. Throws Error(model) for published
/// scales of other blocks than 128 columns, or whole rows.
std::int64_t group_of(WeightCode code, const WeightSource& source);

/// Writes all panels of a source to `out`, which holds experts * expert_bytes(). `order`: of a
/// weight in groups, its columns_by_group().
void pack_coded_panels(Queue& queue, const WeightSource& source, const CodedShape& shape,
                       std::byte* out, std::span<const std::int32_t> order = {});

/// The code of 0.
constexpr std::uint8_t zero_code(WeightCode code) { return code == WeightCode::q4 ? 7 : 0; }

/// The code of row n of the panel and column k.
std::uint8_t code_at(const CodedShape& shape, const std::byte* panel, std::int64_t n,
                     std::int64_t k);

/// Row n of the panel as `columns` floats.
void read_coded_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out);

}  // namespace hyb::kernels
