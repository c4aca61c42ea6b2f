#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/weight.h"

namespace hyb::kernels {

/// Where things lie in the panels of a weight with codes. A panel is 64 outputs by all columns, as
/// groups of columns behind each other: first the group's 64 scales, then its columns by eights,
/// the last one filled up with codes of 0. Eight columns k of 16 outputs n are
///   8 bits  128 bytes  [k/4][n%16/4][k/2%2][n%4][k%2]: a lane's low and high 8 bytes, each
///                      widened to 16 bits, are two vectors of pairs of k
///   4 bits  64 bytes   [n][k%2] words of 16 bits, k/2 counting their codes from the low end
/// and the four sixteenths of the outputs stand behind each other.
struct CodedShape {
  WeightCode code;
  std::int64_t panels;   ///< per expert
  std::int64_t columns;  ///< K
  std::int64_t group;    ///< columns that share a scale, a multiple of 8

  std::int64_t scale_bytes() const { return code == WeightCode::fp8 ? 4 : 2; }
  std::int64_t scales_bytes() const { return scale_bytes() * Weight::panel_rows; }
  /// Of eight columns.
  std::int64_t eight_bytes() const { return code == WeightCode::q4 ? 256 : 512; }
  std::int64_t groups() const { return (columns + group - 1) / group; }
  std::int64_t group_bytes() const { return scales_bytes() + group / 8 * eight_bytes(); }
  std::int64_t panel_bytes() const {
    return groups() * scales_bytes() + (columns + 7) / 8 * eight_bytes();
  }
  std::int64_t expert_bytes() const { return panels * panel_bytes(); }
};

/// Columns of a group that hold numbers.
inline std::int64_t columns_of(const CodedShape& shape, std::int64_t g) {
  return std::min(shape.group, shape.columns - g * shape.group);
}

CodedShape coded_shape(WeightCode code, std::int64_t rows, std::int64_t columns,
                       std::int64_t group);

/// Of a weight in panels.
CodedShape coded_shape(const Weight& weight);

/// Columns that share a scale where `source` is stored by `code`. Throws Error(model) for published
/// scales of other blocks than 128 columns, or whole rows.
std::int64_t group_of(WeightCode code, const WeightSource& source);

/// Writes all panels of a source to `out`, which holds experts * expert_bytes().
void pack_coded_panels(Queue& queue, const WeightSource& source, const CodedShape& shape,
                       std::byte* out);

/// What code stands for 0.
constexpr std::uint8_t zero_code(WeightCode code) { return code == WeightCode::q4 ? 7 : 0; }

/// The code of row n of the panel and column k.
std::uint8_t code_at(const CodedShape& shape, const std::byte* panel, std::int64_t n,
                     std::int64_t k);

/// Row n of the panel as `columns` floats.
void read_coded_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out);

}  // namespace hyb::kernels
