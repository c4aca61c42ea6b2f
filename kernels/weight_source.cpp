#include "kernels/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/base/error.h"
#include "kernels/linear/gguf_blocks.h"

namespace hyb::kernels {
namespace {

bool is_scale(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// Throws unless `bytes` is what rows of row_bytes take.
void check_bytes(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_bytes,
                 std::size_t bytes) {
  std::int64_t expected = 0;
  const bool fits =
      columns <= std::int64_t{1} << 48 && !__builtin_mul_overflow(row_bytes, rows, &expected);
  if (!fits || static_cast<std::size_t>(expected) != bytes) {
    throw Error(ErrorKind::model, fmt::format("weight: {} rows of {} {} do not take {} bytes", rows,
                                              columns, name_of(dtype), bytes));
  }
}

/// Codes of groups: whole bytes and groups, so that nothing is filled up.
void check_groups(DType dtype, std::int64_t rows, std::int64_t columns, std::size_t bytes,
                  const WeightScales& scales) {
  const std::int64_t group = scales.column_block;
  require(scales.row_block == 1 && !scales.bytes.empty(),
          "weight: groups are of rows, with scales");
  if (group < 8 || group % 8 != 0 || columns % group != 0) {
    throw Error(ErrorKind::model, fmt::format("weight: {} columns are no groups of {} columns, of "
                                              "which 8, 16, 24 ... are read",
                                              columns, group));
  }
  const std::int64_t groups = columns / group;
  const bool is_nvfp4 = dtype == DType::u8 && scales.dtype == DType::f8_e4m3;
  require(is_nvfp4 ? scales.zeros.empty() : is_scale(scales.dtype) && scales.unit == 1,
          "weight: groups have scales of F32, BF16 or F16, or of E4M3 with a unit");
  check_bytes(dtype, rows, columns, dtype == DType::u8 ? columns / 2 : columns, bytes);
  check_bytes(scales.dtype, rows, groups, row_bytes_of(scales.dtype, groups), scales.bytes.size());
  if (!scales.zeros.empty()) check_bytes(DType::i8, rows, groups, groups, scales.zeros.size());
  if (scales.group_of.empty()) return;
  require(std::ssize(scales.group_of) == columns, "weight: every column has a group");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups));
  for (const std::int32_t of : scales.group_of) {
    require(of >= 0 && of < groups, "weight: a column's group is one of those with scales");
    ++counts[static_cast<std::size_t>(of)];
  }
  require(std::ranges::count(counts, group) == groups, "weight: groups have as many columns");
}

void check_strip(DType dtype, std::int64_t rows, std::int64_t columns, std::size_t bytes,
                 const WeightScales& scales) {
  require(rows >= 1 && columns >= 1, "weight: at least one expert, row and column");
  const bool is_mxfp4 = dtype == DType::u8 && scales.dtype == DType::u8;
  if (dtype == DType::i8 || (dtype == DType::u8 && !is_mxfp4)) {
    return check_groups(dtype, rows, columns, bytes, scales);
  }
  if (!is_scale(dtype) && dtype != DType::f8_e4m3 && !is_mxfp4) {
    throw Error(ErrorKind::model,
                fmt::format("weight: the type is F32, BF16, F16, F8_E4M3 or U8 (MXFP4), got {}",
                            name_of(dtype)));
  }
  check_bytes(dtype, rows, columns, row_bytes_of(dtype, columns), bytes);
  if (is_mxfp4) {
    const std::int64_t groups = (columns - 1) / mxfp4_group + 1;
    require(
        scales.dtype == DType::u8 && scales.row_block == 1 && scales.column_block == mxfp4_group,
        "weight: MXFP4 has a scale for every 32 columns of a row");
    return check_bytes(scales.dtype, rows, groups, groups, scales.bytes.size());
  }
  if (scales.bytes.empty()) return;
  require(scales.row_block >= 1 && scales.column_block >= 1, "weight: a scale is of some numbers");
  if (dtype != DType::f8_e4m3 || !is_scale(scales.dtype)) {
    throw Error(ErrorKind::model,
                fmt::format("weight: scales are F32, BF16 or F16 and of F8_E4M3, got {} of {}",
                            name_of(scales.dtype), name_of(dtype)));
  }
  const std::int64_t blocks = (columns - 1) / scales.column_block + 1;
  check_bytes(scales.dtype, (rows - 1) / scales.row_block + 1, blocks,
              row_bytes_of(scales.dtype, blocks), scales.bytes.size());
}

/// Rows of all experts.
std::int64_t rows_of(const WeightSource& source) {
  std::int64_t rows = source.experts;
  require(source.experts >= 1, "weight: at least one expert, row and column");
  if (__builtin_mul_overflow(rows, source.rows, &rows)) {
    throw Error(ErrorKind::model, "weight: experts times rows cannot be counted");
  }
  return rows;
}

std::int64_t block_row_bytes(const GgufBlock& block, std::int64_t columns) {
  return columns / block.elements * block.bytes;
}

/// Bytes from the first of a strip's rows to row `at`.
std::int64_t offset_of(const WeightStrip& strip, std::int64_t at, std::int64_t columns) {
  const std::int64_t row_bytes =
      strip.block != nullptr  ? block_row_bytes(*strip.block, columns)
      : strip.column_step > 0 ? static_cast<std::int64_t>(size_of(strip.dtype))
      : strip.is_grouped() && strip.dtype == DType::u8 ? columns / 2
                                                       : row_bytes_of(strip.dtype, columns);
  return at * strip.row_step * row_bytes;
}

}  // namespace

WeightSource::WeightSource(std::int64_t expert_count, std::int64_t row_count,
                           std::int64_t column_count)
    : experts(expert_count), rows(row_count), columns(column_count) {}

WeightSource::WeightSource(DType dtype, std::int64_t expert_count, std::int64_t row_count,
                           std::int64_t column_count, std::span<const std::byte> bytes)
    : WeightSource(expert_count, row_count, column_count) {
  append(dtype, rows_of(*this), bytes);
}

WeightSource::WeightSource(const GgufBlock& block, std::int64_t expert_count,
                           std::int64_t row_count, std::int64_t column_count,
                           std::span<const std::byte> bytes)
    : WeightSource(expert_count, row_count, column_count) {
  if (!is_gguf_coded(block.type) || column_count % block.elements != 0) {
    throw Error(ErrorKind::model, fmt::format("weight: rows of {} {} are not read in blocks",
                                              column_count, block.name));
  }
  require(row_count >= 1 && column_count >= 1, "weight: at least one expert, row and column");
  check_bytes(DType::f32, rows_of(*this), column_count, block_row_bytes(block, column_count),
              bytes.size());
  strips.push_back({.dtype = DType::f32,
                    .first = 0,
                    .rows = rows_of(*this),
                    .bytes = bytes.data(),
                    .block = &block});
}

WeightSource::WeightSource(const RandomNumbers& numbers, std::int64_t expert_count,
                           std::int64_t row_count, std::int64_t column_count)
    : WeightSource(expert_count, row_count, column_count) {
  require(row_count >= 1 && column_count >= 1, "weight: at least one expert, row and column");
  strips.push_back({.dtype = numbers.dtype,
                    .first = 0,
                    .rows = rows_of(*this),
                    .bytes = nullptr,
                    .random = numbers});
}

void WeightSource::append(DType dtype, std::int64_t count, std::span<const std::byte> bytes,
                          const WeightScales& scales) {
  check_strip(dtype, count, columns, bytes.size(), scales);
  const std::int64_t first = strips.empty() ? 0 : strips.back().first + strips.back().rows;
  strips.push_back(
      {.dtype = dtype, .first = first, .rows = count, .bytes = bytes.data(), .scales = scales});
}

void WeightSource::append_transposed(DType dtype, std::int64_t count,
                                     std::span<const std::byte> bytes) {
  require(is_scale(dtype), "weight: what is transposed is F32, BF16 or F16");
  append(dtype, count, bytes);
  strips.back().column_step = count;
}

void WeightSource::append(const WeightSource& from, std::int64_t first, std::int64_t count,
                          std::int64_t step) {
  require(from.columns == columns, "weight: appended rows are as wide as the others");
  while (count > 0) {
    WeightStrip strip = from.strip_of(first);
    const std::int64_t begin = first - strip.first;
    const std::int64_t here = std::min(count, (strip.rows - begin + step - 1) / step);
    require(step == 1 || here == count, "weight: rows with a step are of one strip");
    if (strip.random) {
      // Any numbers will do that no other step from this strip takes.
      const std::int64_t offset = begin % step;
      strip.random = strip.random->from((begin - offset + offset * count) * columns);
    } else {
      strip.bytes += offset_of(strip, begin, columns);
      strip.row_step *= step;
    }
    strip.scales_row += begin;
    strip.rows = here;
    strip.first = strips.empty() ? 0 : strips.back().first + strips.back().rows;
    strips.push_back(strip);
    first += here;
    count -= here;
  }
}

const WeightStrip& WeightSource::strip_of(std::int64_t row) const {
  const auto next =
      std::upper_bound(strips.begin(), strips.end(), row,
                       [](std::int64_t wanted, const WeightStrip& s) { return wanted < s.first; });
  return *(next - 1);
}

WeightRow WeightSource::row(std::int64_t row) const {
  const WeightStrip& strip = strip_of(row);
  const WeightScales& scales = strip.scales;
  const std::int64_t at = row - strip.first;
  if (strip.random) {
    return {.bytes = nullptr,
            .dtype = strip.dtype,
            .scale_dtype = scales.dtype,
            .scales = nullptr,
            .column_block = scales.column_block,
            .random = strip.random->from(at * columns)};
  }
  WeightRow found = {.bytes = strip.bytes + offset_of(strip, at, columns),
                     .dtype = strip.dtype,
                     .scale_dtype = scales.dtype,
                     .scales = nullptr,
                     .column_block = scales.column_block,
                     .column_step = strip.column_step > 0 ? strip.column_step : 1,
                     .block = strip.block};
  if (!scales.bytes.empty()) {
    const std::int64_t blocks = (columns - 1) / scales.column_block + 1;
    const std::int64_t first = (strip.scales_row + at * strip.row_step) / scales.row_block * blocks;
    found.scales = scales.bytes.data() + first * static_cast<std::int64_t>(size_of(scales.dtype));
    if (!scales.zeros.empty()) found.zeros = scales.zeros.data() + first;
    found.unit = scales.unit;
    found.group_of = scales.group_of;
  }
  return found;
}

bool WeightSource::is_all(DType dtype) const {
  return std::all_of(strips.begin(), strips.end(), [dtype](const WeightStrip& s) {
    return s.dtype == dtype && s.block == nullptr && !s.is_grouped();
  });
}

std::optional<GroupCodes> WeightSource::groups() const {
  constexpr std::int64_t group_max = 1024;
  const auto levels_of = [](const WeightStrip& s) {
    if (s.dtype == DType::i8) return GgufType::q8_0;
    return s.scales.dtype == DType::f8_e4m3 ? GgufType::mxfp4 : GgufType::q4_0;
  };
  if (strips.empty()) return std::nullopt;
  const WeightStrip& first = strips.front();
  GroupCodes codes = {levels_of(first), first.scales.dtype, false, group_max};
  for (const WeightStrip& strip : strips) {
    if (!strip.is_grouped() || levels_of(strip) != codes.levels) return std::nullopt;
    if (strip.scales.dtype != codes.scales) codes.scales = DType::f32;
    codes.has_zeros |= !strip.scales.zeros.empty();
    const std::int64_t block = strip.scales.column_block;
    if (block < columns) codes.group = std::gcd(codes.group, block);
  }
  return codes;
}

bool WeightSource::groups_alike() const {
  for (std::size_t i = 1; i < strips.size(); ++i) {
    if (strips[i].first % rows == 0) continue;  // of another expert
    if (!std::ranges::equal(strips[i].scales.group_of, strips[i - 1].scales.group_of)) return false;
  }
  return true;
}

std::vector<std::int32_t> WeightSource::columns_by_group() const {
  const auto is_run = [](const WeightStrip& strip) { return strip.scales.group_of.empty(); };
  if (std::ranges::all_of(strips, is_run)) return {};
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts * columns));
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::span own = std::span(all).subspan(static_cast<std::size_t>(e * columns),
                                                 static_cast<std::size_t>(columns));
    std::iota(own.begin(), own.end(), 0);
    const std::span<const std::int32_t> group_of = strip_of(e * rows).scales.group_of;
    if (group_of.empty()) continue;
    std::ranges::stable_sort(own, {},
                             [&](std::int32_t k) { return group_of[static_cast<std::size_t>(k)]; });
  }
  return all;
}

const GgufBlock* WeightSource::block() const {
  const bool is_one =
      !strips.empty() && std::all_of(strips.begin(), strips.end(), [this](const WeightStrip& s) {
        return s.block == strips.front().block;
      });
  return is_one ? strips.front().block : nullptr;
}

std::int64_t WeightSource::scale_columns() const {
  std::int64_t common = 0;
  for (const WeightStrip& strip : strips) {
    const std::int64_t block = strip.scales.column_block;
    if (!strip.scales.bytes.empty() && block < columns) common = std::gcd(common, block);
  }
  return common;
}

void WeightSource::check() const {
  require(!strips.empty(), "weight: at least one expert, row and column");
  const WeightStrip& last = strips.back();
  require(last.first + last.rows == rows_of(*this), "weight: the strips hold all rows");
}

void read_numbers(const WeightRow& row, std::int64_t first, std::span<float> out) {
  if (row.block == nullptr) {
    for (float& number : out) number = published_value(row, first++);
    return;
  }
  std::array<float, GgufGroups::elements_max> values;
  const auto elements = static_cast<std::int64_t>(row.block->elements);
  while (!out.empty()) {
    const std::span block = std::span(values).first(row.block->elements);
    read_gguf_values(row.block->type, row.bytes + first / elements * row.block->bytes, block);
    const auto begin = static_cast<std::size_t>(first % elements);
    const std::size_t count = std::min(out.size(), block.size() - begin);
    std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(begin), count, out.begin());
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

}  // namespace hyb::kernels
