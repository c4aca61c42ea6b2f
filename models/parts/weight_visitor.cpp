#include "models/parts/weight_visitor.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"

namespace hyb::models {

void MatrixRows::note(const StoredMatrix& from) {
  const std::pair tensor(from.role, from.expert);
  if (std::find(stored_.begin(), stored_.end(), tensor) == stored_.end()) {
    stored_.push_back(tensor);
  }
}

void MatrixRows::append(const StoredMatrix& from, std::int64_t first, std::int64_t count) {
  rows_ += count;
  note(from);
  if (!from.source.strips.empty()) source_.append(from.source, first, count);
}

void MatrixRows::append_alternating(const StoredMatrix& from, std::int64_t first,
                                    std::int64_t count) {
  rows_ += count;
  note(from);
  if (from.source.strips.empty()) return;
  source_.append(from.source, first, count / 2, 2);
  source_.append(from.source, first + 1, count / 2, 2);
}

void MatrixRows::append_transposed(const StoredMatrix& from, std::int64_t first,
                                   std::int64_t count) {
  rows_ += from.source.columns;
  note(from);
  is_turned_ = true;
  if (from.source.strips.empty()) return;
  const kernels::WeightStrip strip = from.source.strip_of(first);
  require(first + count <= strip.first + strip.rows, "weights: what is transposed is one tensor");
  if (strip.random) {
    // Any numbers will do.
    return source_.append({*strip.random, 1, from.source.columns, count}, 0, from.source.columns);
  }
  const kernels::WeightRow row = from.source.row(first);
  const bool is_plain =
      strip.dtype == DType::f32 || strip.dtype == DType::bf16 || strip.dtype == DType::f16;
  if (!is_plain || !row.is_stored_as(strip.dtype)) {
    throw Error(ErrorKind::model,
                fmt::format("weights: {} is read by its columns, and must be F32, "
                            "BF16 or F16",
                            from.role.name()));
  }
  const std::size_t row_bytes =
      static_cast<std::size_t>(from.source.columns) * size_of(strip.dtype);
  source_.append_transposed(strip.dtype, from.source.columns,
                            {row.bytes, static_cast<std::size_t>(count) * row_bytes});
}

void MatrixRows::append_alternating(const StoredMatrix& from) {
  const std::int64_t experts = source_.experts, rows = from.rows / experts;
  rows_ += from.rows;
  stored_.emplace_back(from.role, from.expert);
  if (from.source.strips.empty()) return;
  for (std::int64_t e = 0; e < experts; ++e) {
    source_.append(from.source, e * rows, rows / 2, 2);
    source_.append(from.source, e * rows + 1, rows / 2, 2);
  }
}

void MatrixRows::append(const MatrixRows& from) {
  rows_ += from.rows_;
  stored_.insert(stored_.end(), from.stored_.begin(), from.stored_.end());
  is_turned_ = is_turned_ || from.is_turned_;
  if (!from.source_.strips.empty()) source_.append(from.source(), 0, from.rows_);
}

kernels::WeightSource MatrixRows::source() const {
  kernels::WeightSource all = source_;
  all.rows = rows();
  return all;
}

kernels::Weight WeightVisitor::matrix(Role role, std::int64_t rows, std::int64_t columns,
                                      Packing packing) {
  return stacked({{role, rows}}, columns, packing);
}

kernels::Weight WeightVisitor::stacked(std::initializer_list<RoleSize> matrices,
                                       std::int64_t columns, Packing packing) {
  MatrixRows all(columns);
  for (const auto& [role, rows] : matrices) all.append(stored(role, rows, columns));
  return pack(all, packing);
}

std::vector<kernels::Weight> WeightVisitor::matrices(Role whole, Role each, std::int64_t count,
                                                     std::int64_t width) {
  std::vector<kernels::Weight> weights;
  set_layer(0);
  if (is_fused(each, whole)) {
    for (std::int32_t i = 0; i < count; ++i) {
      set_layer(i);
      weights.push_back(matrix(each, width, width));
    }
    return weights;
  }
  set_layer(-1);
  const StoredMatrix all = stored_experts(whole, count, width, width);
  for (std::int64_t i = 0; i < count; ++i) {
    MatrixRows rows(width);
    rows.append(all, i * width, width);
    weights.push_back(pack(rows));
  }
  return weights;
}

kernels::Tensor WeightVisitor::vector(Role role, std::int64_t count, std::int64_t times) {
  const Small tensor = {.role = role, .shape = {count}, .times = times};
  return {visit_small({&tensor, 1}), DType::f32, {count * times}};
}

kernels::Tensor WeightVisitor::scaled_vector(Role role, std::int64_t count, float factor) {
  const Small tensor = {.role = role, .shape = {count}, .factor = factor};
  return {visit_small({&tensor, 1}), DType::f32, {count}};
}

kernels::Tensor WeightVisitor::rates(Role rate, Role log, std::vector<std::int64_t> shape) {
  const bool is_log = is_fused(log, rate);
  const Small tensor = {.role = is_log ? log : rate, .shape = std::move(shape), .is_log = is_log};
  return {visit_small({&tensor, 1}), DType::f32, {tensor.count()}};
}

kernels::Tensor WeightVisitor::vectors(std::initializer_list<RoleSize> tensors) {
  std::vector<Small> all;
  std::int64_t sum = 0;
  for (const auto& [role, count] : tensors) {
    all.push_back({.role = role, .shape = {count}});
    sum += count;
  }
  return {visit_small(all), DType::f32, {sum}};
}

kernels::Tensor WeightVisitor::constants(std::vector<float> numbers,
                                         std::initializer_list<std::int64_t> shape) {
  const Small tensor = {.role = {}, .shape = shape, .constants = std::move(numbers)};
  return {visit_small({&tensor, 1}), DType::f32, shape};
}

kernels::Tensor WeightVisitor::small_matrix(Role role, std::int64_t rows, std::int64_t columns) {
  const Small tensor = {.role = role, .shape = {rows, columns}};
  return {visit_small({&tensor, 1}), DType::f32, {rows, columns}};
}

kernels::Tensor WeightVisitor::expert_vectors(Role role, std::int64_t experts, std::int64_t count,
                                              bool alternating) {
  const Small tensor = {.role = role, .shape = {experts, count}, .alternating = alternating};
  return {visit_small({&tensor, 1}), DType::f32, {experts, count}};
}

kernels::Tensor WeightVisitor::expert_vectors(Role left, Role right, std::int64_t experts,
                                              std::int64_t count) {
  const Small tensors[] = {{.role = left, .shape = {experts, count}, .rows = experts},
                           {.role = right, .shape = {experts, count}, .rows = experts}};
  return {visit_small(tensors), DType::f32, {experts, 2 * count}};
}

std::vector<float> WeightVisitor::joined(std::span<const Small> tensors,
                                         std::span<const std::vector<float>> numbers) {
  std::vector<float> all;
  const std::int64_t rows = tensors.front().rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::int64_t width = std::ssize(numbers[t]) / rows;
      const auto begin = numbers[t].begin() + row * width;
      for (std::int64_t i = 0; i < tensors[t].times; ++i) {
        all.insert(all.end(), begin, begin + width);
      }
    }
  }
  return all;
}

kernels::Tensor WeightVisitor::taps(std::initializer_list<RoleSize> tensors, std::int64_t width) {
  std::vector<Small> all;
  std::int64_t sum = 0;
  for (const auto& [role, channels] : tensors) {
    all.push_back({.role = role, .shape = {channels, 1, width}});
    sum += channels;
  }
  return {visit_small(all), DType::f32, {sum, width}};
}

}  // namespace hyb::models
