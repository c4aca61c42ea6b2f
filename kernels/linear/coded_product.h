#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/device.h"
#include "kernels/linear/coded_panels.h"
#include "kernels/linear/coded_routes.h"
#include "kernels/linear/panel_routes.h"

namespace hyb::kernels {

/// The routes of one instruction set for panels of codes; all null for a plain weight.
struct CodedKernel {
  void (*levels)(const CodedTile&) = nullptr;
  void (*tile)(const CodedTile&) = nullptr;
  void (*few)(const CodedTile&) = nullptr;  ///< null: this set has none
  const void* table = nullptr;
};

CodedKernel coded_kernel(Isa isa, WeightCode code);

/// Of K, so many columns' levels wait in the second-level cache (128 KB) while all rows pass by: a
/// multiple of every group.
constexpr std::int64_t coded_run = 1024;
/// So many rows' sums wait on the stack (48 KB) when K needs several runs.
constexpr std::int64_t coded_rows_waiting = 192;

/// Up to so many rows go straight from the codes, a few at a time: with 8 rows 419 against 298
/// GFLOP/s of a thread, the panel in the second-level cache.
constexpr std::int64_t coded_direct_rows = 16;

/// What all tiles of a product have in common.
inline CodedTile coded_tile(const CodedKernel& kernel, const CodedShape& shape,
                            const std::byte* panel) {
  return {.rows = nullptr,
          .count = 0,
          .groups = panel,
          .columns = shape.columns,
          .group = shape.group,
          .group_bytes = shape.group_bytes(),
          .scales_bytes = shape.scales_bytes(),
          .scales_are_f32 = shape.code == WeightCode::fp8,
          .has_nibbles = shape.code == WeightCode::q4,
          .table = kernel.table,
          .levels = nullptr,
          .sums = nullptr,
          .first = true};
}

/// A tile's rows of x from column k on, of which the first is row_of(first).
template <typename RowOf>
void point_to(std::array<const void*, panel_tile_rows>& pointers, const CodedTile& tile,
              RowOf row_of, std::int64_t first, std::int64_t k) {
  for (std::int64_t r = 0; r < tile.count; ++r) {
    pointers[static_cast<std::size_t>(r)] =
        static_cast<const std::byte*>(row_of(first + r)) + k * 2;
  }
}

/// Straight from the codes.
template <typename RowOf, typename Emit>
void coded_product_of_few(const CodedKernel& kernel, const CodedShape& shape,
                          const std::byte* panel, std::int64_t count, RowOf row_of, Emit emit) {
  alignas(64) std::array<float, coded_few_rows * 64> sums;
  std::array<const void*, panel_tile_rows> pointers;
  CodedTile tile = coded_tile(kernel, shape, panel);
  tile.rows = pointers.data();
  tile.sums = sums.data();
  const std::int64_t tiles = (count + coded_few_rows - 1) / coded_few_rows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t first = count * t / tiles;
    tile.count = count * (t + 1) / tiles - first;
    point_to(pointers, tile, row_of, first, 0);
    kernel.few(tile);
    for (std::int64_t r = 0; r < tile.count; ++r) emit(first + r, sums.data() + r * 64);
  }
}

/// As panel_product, for a panel of codes.
template <typename RowOf, typename Emit>
void coded_product(const CodedKernel& kernel, const CodedShape& shape, const std::byte* panel,
                   std::int64_t count, RowOf row_of, Emit emit) {
  if (kernel.few != nullptr && count <= coded_direct_rows) {
    return coded_product_of_few(kernel, shape, panel, count, row_of, emit);
  }
  alignas(64) std::array<float, coded_rows_waiting * 64> sums;
  alignas(64) std::array<std::byte, coded_run * 128> levels;
  std::array<const void*, panel_tile_rows> pointers;
  CodedTile tile = coded_tile(kernel, shape, panel);
  tile.rows = pointers.data();
  tile.levels = levels.data();
  const std::int64_t passes = (count + coded_rows_waiting - 1) / coded_rows_waiting;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = count * pass / passes;
    const std::int64_t rows = count * (pass + 1) / passes - begin;
    const std::int64_t tiles = (rows + panel_tile_rows - 1) / panel_tile_rows;
    for (std::int64_t k = 0; k < shape.columns; k += coded_run) {
      tile.groups = panel + k / shape.group * shape.group_bytes();
      tile.columns = std::min(coded_run, shape.columns - k);
      tile.first = k == 0;
      kernel.levels(tile);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t first = rows * t / tiles;
        tile.count = rows * (t + 1) / tiles - first;
        tile.sums = sums.data() + first * 64;
        point_to(pointers, tile, row_of, begin + first, k);
        kernel.tile(tile);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) emit(begin + r, sums.data() + r * 64);
  }
}

}  // namespace hyb::kernels
