#include "kernels/weight.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/linear/panels.h"
#include "kernels/linear/upload_rows.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

void check_strip(DType dtype, std::int64_t rows, std::int64_t columns, std::size_t bytes) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    throw Error(ErrorKind::model,
                fmt::format("weight: the type is F32, BF16 or F16, got {}", name_of(dtype)));
  }
  require(rows >= 1 && columns >= 1, "weight: at least one expert, row and column");
  std::int64_t expected = static_cast<std::int64_t>(size_of(dtype));
  bool fits = !__builtin_mul_overflow(expected, rows, &expected);
  fits = fits && !__builtin_mul_overflow(expected, columns, &expected);
  if (!fits || static_cast<std::size_t>(expected) != bytes) {
    throw Error(ErrorKind::model, fmt::format("weight: {} rows of {} {} do not take {} bytes", rows,
                                              columns, name_of(dtype), bytes));
  }
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

void check(const WeightSource& source) {
  require(!source.strips.empty(), "weight: at least one expert, row and column");
  const WeightStrip& last = source.strips.back();
  require(last.first + last.rows == rows_of(source), "weight: the strips hold all rows");
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

void WeightSource::append(DType dtype, std::int64_t count, std::span<const std::byte> bytes) {
  check_strip(dtype, count, columns, bytes.size());
  const std::int64_t first = strips.empty() ? 0 : strips.back().first + strips.back().rows;
  strips.push_back({.dtype = dtype, .first = first, .rows = count, .bytes = bytes.data()});
}

void WeightSource::append(const WeightSource& from, std::int64_t first, std::int64_t count) {
  require(from.columns == columns, "weight: appended rows are as wide as the others");
  while (count > 0) {
    const WeightStrip& strip = from.strip_of(first);
    const std::int64_t here = std::min(count, strip.first + strip.rows - first);
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * size_of(strip.dtype);
    append(strip.dtype, here,
           {strip.bytes + static_cast<std::size_t>(first - strip.first) * row_bytes,
            static_cast<std::size_t>(here) * row_bytes});
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

Weight Weight::view(const WeightSource& source) {
  check(source);
  require(source.strips.size() == 1, "weight: a view is of one tensor");
  Weight weight;
  weight.format_ = WeightFormat::rows;
  weight.dtype_ = source.strips.front().dtype;
  weight.experts_ = source.experts;
  weight.rows_ = source.rows;
  weight.columns_ = source.columns;
  weight.view_ = source.strips.front().bytes;
  return weight;
}

Weight Weight::pack(Queue& queue, const WeightSource& source, DType dtype) {
  require(dtype == DType::bf16 || dtype == DType::f32, "weight: panels are BF16 or F32");
  check(source);
  Weight weight;
  weight.dtype_ = dtype;
  weight.experts_ = source.experts;
  weight.rows_ = source.rows;
  weight.columns_ = source.columns;
  if (queue.device() == Device::cuda) {
    const std::int64_t count = source.experts * source.rows * source.columns;
    weight.owned_ = Buffer(Device::cuda, static_cast<std::size_t>(count) * size_of(dtype));
    weight.view_ = weight.owned_.data();
    upload_rows(queue, source, dtype, weight.owned_.data());
    return weight;
  }
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  weight.format_ = WeightFormat::panels;
  weight.owned_ =
      Buffer(queue.device(), static_cast<std::size_t>(source.experts * shape.expert_bytes()));
  pack_panels(queue, source, dtype, weight.owned_.data());
  return weight;
}

const std::byte* Weight::expert(std::int64_t e) const {
  require(e >= 0 && e < experts_, "weight: expert lies in 0..experts-1");
  if (format_ == WeightFormat::rows) {
    return view_ + e * rows_ * columns_ * static_cast<std::int64_t>(size_of(dtype_));
  }
  return owned_.data() + e * panel_shape(dtype_, rows_, columns_).expert_bytes();
}

void Weight::read_row(std::int64_t e, std::int64_t n, std::span<float> out) const {
  require(n >= 0 && n < rows_, "weight: row lies in 0..rows-1");
  require(std::ssize(out) == columns_, "weight: a row is `columns` floats");
  const std::byte* const matrix = expert(e);
  if (format_ == WeightFormat::rows) {
    for (std::int64_t k = 0; k < columns_; ++k) {
      out[static_cast<std::size_t>(k)] = published_value(matrix, dtype_, n * columns_ + k);
    }
    return;
  }
  const PanelShape shape = panel_shape(dtype_, rows_, columns_);
  const std::byte* const panel = matrix + n / panel_rows * shape.panel_bytes();
  const std::int64_t per_word = dtype_ == DType::bf16 ? 2 : 1;
  for (std::int64_t k = 0; k < columns_; ++k) {
    const std::byte* const word = panel + (k / per_word * panel_rows + n % panel_rows) * 4;
    out[static_cast<std::size_t>(k)] = published_value(word, dtype_, k % per_word);
  }
}

}  // namespace hyb::kernels
