#include "kernels/weight.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/linear/panels.h"
#include "kernels/linear/upload_rows.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

void check(const WeightSource& source) {
  if (source.dtype != DType::f32 && source.dtype != DType::bf16 && source.dtype != DType::f16) {
    throw Error(ErrorKind::model,
                fmt::format("weight: the type is F32, BF16 or F16, got {}", name_of(source.dtype)));
  }
  require(source.experts >= 1 && source.rows >= 1 && source.columns >= 1,
          "weight: at least one expert, row and column");
  std::int64_t bytes = static_cast<std::int64_t>(size_of(source.dtype));
  bool fits = !__builtin_mul_overflow(bytes, source.experts, &bytes);
  fits = fits && !__builtin_mul_overflow(bytes, source.rows, &bytes);
  fits = fits && !__builtin_mul_overflow(bytes, source.columns, &bytes);
  if (!fits || static_cast<std::size_t>(bytes) != source.bytes.size()) {
    throw Error(ErrorKind::model, fmt::format("weight: [{},{},{}] of {} does not take {} bytes",
                                              source.experts, source.rows, source.columns,
                                              name_of(source.dtype), source.bytes.size()));
  }
}

}  // namespace

Weight Weight::view(const WeightSource& source) {
  check(source);
  Weight weight;
  weight.format_ = WeightFormat::rows;
  weight.dtype_ = source.dtype;
  weight.experts_ = source.experts;
  weight.rows_ = source.rows;
  weight.columns_ = source.columns;
  weight.view_ = source.bytes.data();
  return weight;
}

Weight Weight::pack(Queue& queue, const WeightSource& source, DType dtype) {
  require(dtype == DType::bf16 || dtype == DType::f32, "weight: panels are BF16 or F32");
  Weight weight = view(source);
  if (queue.device() == Device::cuda) {
    weight.dtype_ = dtype;
    const std::int64_t count = source.experts * source.rows * source.columns;
    weight.owned_ = Buffer(Device::cuda, static_cast<std::size_t>(count) * size_of(dtype));
    weight.view_ = weight.owned_.data();
    upload_rows(queue, source, dtype, weight.owned_.data());
    return weight;
  }
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  weight.format_ = WeightFormat::panels;
  weight.dtype_ = dtype;
  weight.view_ = nullptr;
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
