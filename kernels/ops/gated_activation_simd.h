#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// NaN stays NaN.
[[gnu::always_inline]] inline Vec relu2(Vec value) {
  const Vec kept = larger(zeros(), value);
  return kept * kept;
}

template <typename T, typename Function>
void activate(const ActivationRow<T>& row, Function function) {
  each_vector(row.count, [&](std::int64_t i, auto part) {
    const Vec value = function(load(row.x + i, part));
    store(row.y + i, row.up == nullptr ? value : value * load(row.up + i, part), part);
  });
}

template <typename T>
void activate(const ActivationRow<T>& row) {
  switch (row.function) {
    case ActivationFunction::silu:
      return activate(row, [](Vec value) { return silu(value); });
    case ActivationFunction::relu2:
      return activate(row, [](Vec value) { return relu2(value); });
  }
  __builtin_trap();
}

}  // namespace

template <>
void activate_row<vector_isa>(const ActivationRow<float>& row) {
  activate(row);
}
template <>
void activate_row<vector_isa>(const ActivationRow<bf16>& row) {
  activate(row);
}

}  // namespace hyb::kernels
