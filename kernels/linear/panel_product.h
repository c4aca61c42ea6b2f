#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/device.h"
#include "kernels/floats.h"
#include "kernels/linear/bits12.h"
#include "kernels/linear/pack.h"
#include "kernels/linear/panel_tiles.h"

namespace hyb::kernels {

/// The routes of one instruction set for panels of codes; all null for a plain weight.
struct CodedKernel {
  void (*levels)(const CodedTile&) = nullptr;
  void (*tile)(const CodedTile&) = nullptr;
  void (*few)(const CodedTile&) = nullptr;  ///< null: this set has none
  const void* table = nullptr;
};

CodedKernel coded_kernel(Isa isa, WeightCode code, GgufType type);

/// Columns of K whose levels stay in the second-level cache (128 KB) while all rows pass by: a
/// multiple of every group.
constexpr std::int64_t coded_run = 1024;
constexpr std::int64_t coded_smallest_group = 8;
/// Rows whose sums are kept on the stack (48 KB) when K needs several runs.
constexpr std::int64_t coded_rows_waiting = 192;

/// Up to this many rows go straight from the codes, a few at a time: with 8 rows 419 against 298
/// GFLOP/s of a thread, the panel in the second-level cache.
constexpr std::int64_t coded_direct_rows = 16;

/// Returns what all tiles of a product have in common.
inline CodedTile coded_tile(const CodedKernel& kernel, const CodedShape& shape,
                            const std::byte* panel) {
  return {.rows = nullptr,
          .count = 0,
          .groups = panel + shape.groups_offset(),
          .columns = shape.columns,
          .group = shape.group,
          .group_bytes = shape.group_bytes(),
          .scales_bytes = shape.scales_bytes(),
          .scales = shape.scales,
          .has_mins = shape.has_mins,
          .has_zeros = shape.has_zeros,
          .units = panel,
          .units_bytes = shape.units_bytes(),
          .row_sums = nullptr,
          .bits = shape.bits,
          .has_lowest = shape.code == WeightCode::blocks || shape.code == WeightCode::groups,
          .table = kernel.table,
          .levels = nullptr,
          .read_scales = nullptr,
          .sums = nullptr,
          .first = true};
}

/// Holds of every row of x the sums of its groups of columns, for weights with minima: each one
/// chain, whatever multiplies the row.
class RowSums {
 public:
  RowSums() = default;
  RowSums(Queue& queue, const std::byte* x, std::int64_t rows, std::int64_t row_bytes,
          const CodedShape& shape);

  /// Returns those of a row of x from a group on.
  const float* of(const void* row, std::int64_t group) const {
    return sums_.data() + (static_cast<const std::byte*>(row) - x_) / row_bytes_ * groups_ + group;
  }

 private:
  const std::byte* x_ = nullptr;
  std::int64_t row_bytes_ = 1, groups_ = 0;
  std::vector<float> sums_;
};

/// Copies of rows of x, [rows,columns], with their columns in the order of a weight's matrix, row i
/// in that of expert_of(i); empty where the weight has none.
std::vector<std::byte> ordered_rows(Queue& queue, const Weight& weight, DType dtype,
                                    std::int64_t rows,
                                    const std::function<const std::byte*(std::int64_t)>& row,
                                    const std::function<std::int64_t(std::int64_t)>& expert_of);

/// A tile's rows of x from column k on, of which the first is row_of(first).
struct TileRows {
  std::array<const void*, panel_tile_rows> x;
  std::array<const float*, panel_tile_rows> sums;

  explicit TileRows(CodedTile& tile) {
    tile.rows = x.data();
    tile.row_sums = sums.data();
  }

  template <typename RowOf>
  void point_to(const CodedTile& tile, const RowSums& row_sums, RowOf row_of, std::int64_t first,
                std::int64_t k) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(tile.count); ++r) {
      const void* const row = row_of(first + static_cast<std::int64_t>(r));
      x[r] = static_cast<const std::byte*>(row) + k * 2;
      if (tile.has_mins) sums[r] = row_sums.of(row, k / tile.group);
    }
  }
};

/// Straight from the codes.
template <typename RowOf, typename Emit>
void coded_product_few_rows(const CodedKernel& kernel, const CodedShape& shape,
                            const std::byte* panel, const RowSums& row_sums, std::int64_t count,
                            RowOf row_of, Emit emit) {
  alignas(64) std::array<float, coded_few_rows * 64> sums;
  CodedTile tile = coded_tile(kernel, shape, panel);
  TileRows rows(tile);
  tile.sums = sums.data();
  const std::int64_t tiles = (count + coded_few_rows - 1) / coded_few_rows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t first = count * t / tiles;
    tile.count = count * (t + 1) / tiles - first;
    rows.point_to(tile, row_sums, row_of, first, 0);
    kernel.few(tile);
    for (std::int64_t r = 0; r < tile.count; ++r) emit(first + r, sums.data() + r * 64);
  }
}

/// Works as panel_product, for a panel of codes.
template <typename RowOf, typename Emit>
void coded_product(const CodedKernel& kernel, const CodedShape& shape, const std::byte* panel,
                   const RowSums& row_sums, std::int64_t count, RowOf row_of, Emit emit) {
  if (kernel.few != nullptr && count <= coded_direct_rows) {
    return coded_product_few_rows(kernel, shape, panel, row_sums, count, row_of, emit);
  }
  alignas(64) std::array<float, coded_rows_waiting * 64> sums;
  alignas(64) std::array<std::byte, coded_run * 128> levels;
  alignas(64) std::array<float, coded_run / coded_smallest_group * 128> scales;
  CodedTile tile = coded_tile(kernel, shape, panel);
  TileRows tile_rows(tile);
  tile.levels = levels.data();
  tile.read_scales = scales.data();
  const std::int64_t passes = (count + coded_rows_waiting - 1) / coded_rows_waiting;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    const std::int64_t begin = count * pass / passes;
    const std::int64_t rows = count * (pass + 1) / passes - begin;
    const std::int64_t tiles = (rows + panel_tile_rows - 1) / panel_tile_rows;
    for (std::int64_t k = 0; k < shape.columns; k += coded_run) {
      tile.groups = panel + shape.groups_offset() + k / shape.group * shape.group_bytes();
      tile.units = panel + k / scale_unit_columns * shape.units_bytes();
      tile.columns = std::min(coded_run, shape.columns - k);
      tile.first = k == 0;
      kernel.levels(tile);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t first = rows * t / tiles;
        tile.count = rows * (t + 1) / tiles - first;
        tile.sums = sums.data() + first * 64;
        tile_rows.point_to(tile, row_sums, row_of, begin + first, k);
        kernel.tile(tile);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) emit(begin + r, sums.data() + r * 64);
  }
}

/// The routes of one instruction set for panels of one type.
struct PanelKernel {
  void (*tile)(const PanelTile&);
  void (*row)(const PanelRow&);
  std::int64_t value_bytes;  ///< of a panel's element
  std::int64_t x_bytes;      ///< of a row's element
};

/// Returns the kernel of panels of `dtype`: bf16, f32 or f16.
PanelKernel panel_kernel(Isa isa, DType dtype);

/// Part of K for which a panel stays in the second-level cache while all rows pass by (512 KB).
constexpr std::int64_t panel_run_bytes = 8192;
/// Rows whose sums are kept on the stack (48 KB) when K needs several runs.
constexpr std::int64_t panel_rows_waiting = 192;

/// One tile streams the panel from memory: prefetch a little ahead. Of several only the first does,
/// and they have time to bring the next panel nearer: each a part of it.
inline void set_prefetch(PanelTile& tile, std::int64_t index, std::int64_t tiles,
                         std::int64_t value_bytes) {
  constexpr std::int64_t ahead_bytes = 4096;  // 1 to 8 KB measure alike
  const auto* const panel = static_cast<const std::byte*>(tile.panel);
  const std::int64_t panel_bytes = (tile.columns * value_bytes + 3) / 4 * 4 * Weight::panel_rows;
  if (tiles == 1) {
    tile.prefetch = panel + ahead_bytes;
    tile.prefetch_lines = 4;
  } else if (index < 4) {
    tile.prefetch_lines = tiles < 4 ? 2 : 1;
    tile.prefetch = panel + panel_bytes + index * panel_bytes * tile.prefetch_lines / 4;
  }
}

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
                          .first = k == 0,
                          .prefetch = nullptr,
                          .prefetch_lines = 0};
        if (one_run) set_prefetch(tile, pass, passes, kernel.value_bytes);
        for (std::int64_t r = 0; r < tile.count; ++r) {
          pointers[static_cast<std::size_t>(r)] =
              static_cast<const std::byte*>(row_of(begin + first + r)) + k * kernel.x_bytes;
        }
        kernel.tile(tile);
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) emit(begin + r, sums.data() + r * 64);
  }
}

/// A panel of bits12, of which `patches` is the list of all panels, times rows.
template <typename RowOf>
class Bits12Product {
 public:
  Bits12Product(const Bits12Kernel& kernel, const PanelKernel& bf16_kernel, const std::byte* panel,
                const Bits12Patch* patches, std::int64_t columns, RowOf row_of)
      : kernel_(kernel),
        bf16_kernel_(bf16_kernel),
        row_of_(row_of),
        columns_(columns),
        patches_(patches + bits12_header(panel).first_patch),
        patches_end_(patches_ + bits12_header(panel).patches),
        run_({.panel = panel,
              .patches = patches_,
              .patches_end = patches_end_,
              .first_line = 0,
              .columns = columns,
              .lines = nullptr,
              .rows = pointers_.data(),
              .count = 0,
              .sums = sums_.data(),
              .first = true,
              .ahead_bytes = bits12_ahead_bytes}) {}

  /// Straight from the codes, as panel_product.
  template <typename Emit>
  void multiply_few(std::int64_t count, Emit emit) {
    const std::int64_t panel_bytes = Bits12Shape{1, (columns_ + 1) / 2}.panel_bytes();
    const std::int64_t tiles = (count + panel_tile_rows - 1) / panel_tile_rows;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t first = count * t / tiles;
      run_.count = count * (t + 1) / tiles - first;
      point_to_rows(first, run_.count, 0);
      if (t > 0) run_.ahead_bytes = panel_bytes;  // this one is near: bring the next one nearer
      kernel_.few(run_);
      for (std::int64_t r = 0; r < run_.count; ++r) emit(first + r, sums_.data() + r * 64);
    }
  }

  /// Unpacks a run for all rows, beside the first tile's products where the set can.
  template <typename Emit>
  void multiply(std::int64_t count, Emit emit) {
    alignas(64) std::array<std::byte, bits12_run * 128> lines;
    run_.lines = lines.data();
    const std::int64_t passes = (count + panel_rows_waiting - 1) / panel_rows_waiting;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const std::int64_t begin = count * pass / passes;
      const std::int64_t rows = count * (pass + 1) / passes - begin;
      run_.patches_end = patches_;
      for (std::int64_t k = 0; k < columns_; k += bits12_run) multiply_run(begin, rows, k);
      for (std::int64_t r = 0; r < rows; ++r) emit(begin + r, sums_.data() + r * 64);
    }
  }

 private:
  void point_to_rows(std::int64_t first, std::int64_t count, std::int64_t k) {
    for (std::int64_t r = 0; r < count; ++r) {
      pointers_[static_cast<std::size_t>(r)] =
          static_cast<const std::byte*>(row_of_(first + r)) + k * 2;
    }
  }

  void multiply_run(std::int64_t begin, std::int64_t rows, std::int64_t k) {
    const std::int64_t tiles = (rows + panel_tile_rows - 1) / panel_tile_rows;
    run_.first_line = k / 2;
    run_.columns = std::min(bits12_run, columns_ - k);
    run_.first = k == 0;
    run_.patches = run_.patches_end;
    while (run_.patches_end != patches_end_ && run_.patches_end->line < (k + bits12_run) / 2) {
      ++run_.patches_end;
    }
    if (kernel_.few_keeps_lines) {
      run_.count = rows / tiles;
      point_to_rows(begin, run_.count, k);
      kernel_.few(run_);
    } else {
      kernel_.unpack(run_);
    }
    const std::int64_t run_lines = (run_.columns + 1) / 2;
    const std::byte* next = run_.panel + Bits12Shape::header_bytes +
                            (run_.first_line + run_lines) * Bits12Shape::line_bytes;
    std::int64_t ahead = Bits12Shape::line_bytes / 64;  // lines of 64 bytes for each of the run's
    for (std::int64_t t = kernel_.few_keeps_lines ? 1 : 0; t < tiles; ++t) {
      const std::int64_t first = rows * t / tiles;
      const std::int64_t share = (ahead + tiles - t - 1) / (tiles - t);
      PanelTile tile = {.rows = pointers_.data(),
                        .count = rows * (t + 1) / tiles - first,
                        .panel = run_.lines,
                        .columns = run_.columns,
                        .sums = sums_.data() + first * 64,
                        .first = k == 0,
                        .prefetch = next,
                        .prefetch_lines = share};
      ahead -= share;
      next += share * run_lines * 64;
      point_to_rows(begin + first, tile.count, k);
      bf16_kernel_.tile(tile);
    }
  }

  alignas(64) std::array<float, panel_rows_waiting * 64> sums_;
  std::array<const void*, panel_tile_rows> pointers_;
  const Bits12Kernel& kernel_;
  const PanelKernel& bf16_kernel_;
  RowOf row_of_;
  std::int64_t columns_;
  const Bits12Patch* patches_;  ///< of the panel
  const Bits12Patch* patches_end_;
  Bits12Tile run_;
};

/// Distributes pieces of a matrix product to all threads, body(begin, end), or to the caller alone
/// where a hand-over costs more than it saves: `bytes` counts a weight's bytes once per row.
template <typename Body>
void parallel_product(Queue& queue, std::int64_t items, std::int64_t bytes, Body body) {
  constexpr std::int64_t bytes_worth_sharing = 64 * 1024;
  if (bytes < bytes_worth_sharing) {
    queue.alone([&](int, int) { body(0, items); });
  } else {
    queue.share(items, 1, [&](std::int64_t begin, std::int64_t end, int) { body(begin, end); });
  }
}

/// The same for panel `panel` of an expert of any weight; rows are of type x_dtype.
class WeightProduct {
 public:
  /// Routes of the queue's instruction set for panels, the plain ones for published rows.
  WeightProduct(Isa isa, const Weight& weight, DType x_dtype)
      : weight_(weight),
        x_dtype_(x_dtype),
        published_(weight.format() == WeightFormat::rows),
        kernel_(panel_kernel(published_ ? Isa::plain : isa, published_ ? x_dtype : weight.dtype())),
        shape_(panel_shape(weight.dtype(), weight.rows(), weight.columns())),
        coded_kernel_(coded_kernel(isa, weight.code(), weight.type())),
        coded_shape_(coded_shape(weight)),
        bits12_kernel_(weight.code() == WeightCode::bits12 ? bits12_kernel(isa) : Bits12Kernel()) {}

  /// Takes all rows of x, row_bytes apart, which multiply() needs for a weight in blocks.
  WeightProduct(Queue& queue, const Weight& weight, DType x_dtype, const std::byte* x,
                std::int64_t rows, std::int64_t row_bytes)
      : WeightProduct(queue.isa(), weight, x_dtype) {
    if (coded_shape_.has_mins) row_sums_ = RowSums(queue, x, rows, row_bytes, coded_shape_);
  }

  std::int64_t panels() const { return shape_.panels; }
  std::int64_t panel_bytes() const {
    if (is_bits12()) return bits12_shape(weight_.rows(), weight_.columns()).panel_bytes();
    return is_coded() ? coded_shape_.panel_bytes() : shape_.panel_bytes();
  }
  std::int64_t first_output(std::int64_t panel) const { return panel * Weight::panel_rows; }
  std::int64_t outputs(std::int64_t panel) const {
    return std::min(Weight::panel_rows, weight_.rows() - first_output(panel));
  }
  /// Writes rows of sums as panel_row does.
  void write(const PanelRow& row) const { kernel_.row(row); }

  template <typename RowOf, typename Emit>
  void multiply(std::int64_t expert, std::int64_t panel, std::int64_t count, RowOf row_of,
                Emit emit) const {
    if (published_) return multiply_published(expert, panel, count, row_of, emit);
    const std::byte* const first = weight_.expert(expert) + panel * panel_bytes();
    if (is_bits12()) {
      Bits12Product<RowOf> product(bits12_kernel_, kernel_, first, weight_.patches(),
                                   weight_.columns(), row_of);
      return count <= bits12_kernel_.direct_rows ? product.multiply_few(count, emit)
                                                 : product.multiply(count, emit);
    }
    if (is_coded()) {
      return coded_product(coded_kernel_, coded_shape_, first, row_sums_, count, row_of, emit);
    }
    panel_product(kernel_, first, weight_.columns(), count, row_of, emit);
  }

 private:
  bool is_bits12() const { return bits12_kernel_.unpack != nullptr; }
  bool is_coded() const { return coded_kernel_.tile != nullptr; }

  template <typename RowOf, typename Emit>
  void multiply_published(std::int64_t expert, std::int64_t panel, std::int64_t count, RowOf row_of,
                          Emit emit) const {
    std::array<float, Weight::panel_rows> sums{};
    for (std::int64_t i = 0; i < count; ++i) {
      published_sums(expert, first_output(panel), outputs(panel), row_of(i), sums.data());
      emit(i, sums.data());
    }
  }
  /// sums[n] = the plain loop's sum for output first + n.
  void published_sums(std::int64_t expert, std::int64_t first, std::int64_t count, const void* row,
                      float* sums) const;

  const Weight& weight_;
  DType x_dtype_;
  bool published_;
  PanelKernel kernel_;
  PanelShape shape_;
  CodedKernel coded_kernel_;
  CodedShape coded_shape_;
  RowSums row_sums_;
  Bits12Kernel bits12_kernel_;
};

}  // namespace hyb::kernels
