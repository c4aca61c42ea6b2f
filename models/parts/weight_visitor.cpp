#include "models/parts/weight_visitor.h"

namespace hyb::models {

void MatrixRows::append(const StoredMatrix& from, std::int64_t first, std::int64_t count) {
  rows_ += count;
  if (stored_.empty() || stored_.back() != std::pair(from.role, from.expert)) {
    stored_.emplace_back(from.role, from.expert);
  }
  if (!from.source.strips.empty()) source_.append(from.source, first, count);
}

void MatrixRows::append(const MatrixRows& from) {
  rows_ += from.rows_;
  stored_.insert(stored_.end(), from.stored_.begin(), from.stored_.end());
  if (!from.source_.strips.empty()) source_.append(from.source(), 0, from.rows_);
}

kernels::WeightSource MatrixRows::source() const {
  kernels::WeightSource all = source_;
  all.rows = rows();
  return all;
}

kernels::Weight WeightVisitor::matrix(std::string_view role, std::int64_t rows,
                                      std::int64_t columns, Packing packing) {
  return stacked({{role, rows}}, columns, packing);
}

kernels::Weight WeightVisitor::stacked(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> matrices, std::int64_t columns,
    Packing packing) {
  MatrixRows all(columns);
  for (const auto& [role, rows] : matrices) all.append(stored(role, rows, columns));
  return pack(all, packing);
}

kernels::Tensor WeightVisitor::vector(std::string_view role, std::int64_t count,
                                      std::int64_t times) {
  return {visit_small(role, {count}, times), DType::f32, {count * times}};
}

kernels::Tensor WeightVisitor::taps(std::string_view role, std::int64_t channels,
                                    std::int64_t width) {
  return {visit_small(role, {channels, 1, width}, 1), DType::f32, {channels, width}};
}

}  // namespace hyb::models
