#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/device.h"
#include "kernels/linear/panel_routes.h"
#include "kernels/linear/panels.h"

namespace hyb::kernels {

/// The routes of one instruction set for panels of one type.
struct PanelKernel {
  void (*tile)(const PanelTile&);
  void (*row)(const PanelRow&);
  std::int64_t value_bytes;  ///< of a panel's and a row's element
};

PanelKernel panel_kernel(Isa isa, DType dtype);

/// Of K, so much of a panel stays in the second-level cache while all rows pass by (512 KB).
constexpr std::int64_t panel_run_bytes = 8192;
/// So many rows' sums wait on the stack (48 KB) when K needs several runs.
constexpr std::int64_t panel_rows_waiting = 192;

/// One panel times `count` rows of K columns: row_of(i) points to row i; emit(i, sums) takes its 64
/// sums. Rows go in tiles of nearly equal size, so that no small tile wastes the registers.
template <typename RowOf, typename Emit>
void panel_product(const PanelKernel& kernel, const std::byte* panel, std::int64_t columns,
                   std::int64_t count, RowOf row_of, Emit emit) {
  const std::int64_t run = panel_run_bytes / kernel.value_bytes;
  const bool one_run = columns <= run || count <= panel_tile_rows;
  const std::int64_t rows_at_once = one_run ? panel_tile_rows : panel_rows_waiting;
  const std::int64_t passes = (count + rows_at_once - 1) / rows_at_once;
  alignas(64) std::array<float, panel_rows_waiting * 64> sums;

  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = count * pass / passes;
    const std::int64_t rows = count * (pass + 1) / passes - begin;
    const std::int64_t tiles = (rows + panel_tile_rows - 1) / panel_tile_rows;
    for (std::int64_t k = 0; k < columns; k += one_run ? columns : run) {
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t first = rows * t / tiles;
        std::array<const void*, panel_tile_rows> pointers;
        PanelTile tile = {.rows = pointers.data(),
                          .count = rows * (t + 1) / tiles - first,
                          .panel = panel + k * kernel.value_bytes * Weight::panel_rows,
                          .columns = one_run ? columns : std::min(run, columns - k),
                          .sums = sums.data() + first * 64,
                          .first = k == 0};
        for (std::int64_t r = 0; r < tile.count; ++r) {
          pointers[static_cast<std::size_t>(r)] =
              static_cast<const std::byte*>(row_of(begin + first + r)) + k * kernel.value_bytes;
        }
        kernel.tile(tile);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) emit(begin + r, sums.data() + r * 64);
  }
}

}  // namespace hyb::kernels
