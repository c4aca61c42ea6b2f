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

/// NaN stays NaN.
[[gnu::always_inline]] inline Vec gelu_tanh(Vec value) {
  const Vec slope = fma(broadcast(gelu_tanh_cubic), value * value, broadcast(gelu_tanh_linear));
  return value / (broadcast(1.0F) + exp(value * slope));
}

/// NaN stays NaN.
[[gnu::always_inline]] inline Vec gelu(Vec value) {
  const Vec kept = smaller(broadcast(gelu_square_max), value * value);
  Vec slope = zeros();
  for (const float next : gelu_slopes) slope = fma(slope, kept, broadcast(next));
  return value / (broadcast(1.0F) + exp(value * slope));
}

template <typename T, typename Function>
void activate(const ActivationRow<T>& row, Function function) {
  each_vector(row.count, [&](std::int64_t i, auto part) {
    const Vec value = function(load(row.x + i, part));
    store(row.y + i, row.up == nullptr ? value : value * load(row.up + i, part), part);
  });
}

/// NaN stays NaN.
template <typename T>
void activate_clamped_swiglu(const ActivationRow<T>& row) {
  const Vec highest = broadcast(row.activation.limit), lowest = broadcast(-row.activation.limit);
  const Vec slope = broadcast(-row.activation.alpha), one = broadcast(1.0F);
  each_vector(row.count, [&](std::int64_t i, auto part) {
    const Vec gate = smaller(highest, load(row.x + i, part));
    const Vec factor = smaller(highest, larger(lowest, load(row.up + i, part))) + one;
    store(row.y + i, gate / (one + exp(slope * gate)) * factor, part);
  });
}

/// NaN stays NaN.
template <typename T>
void activate_limited_silu(const ActivationRow<T>& row) {
  const Vec highest = broadcast(row.activation.limit), lowest = broadcast(-row.activation.limit);
  each_vector(row.count, [&](std::int64_t i, auto part) {
    const Vec gate = smaller(highest, silu(load(row.x + i, part)));
    store(row.y + i, gate * smaller(highest, larger(lowest, load(row.up + i, part))), part);
  });
}

template <typename T>
void activate(const ActivationRow<T>& row) {
  switch (row.activation.function) {
    case ActivationFunction::silu:
      return activate(row, [](Vec value) { return silu(value); });
    case ActivationFunction::relu2:
      return activate(row, [](Vec value) { return relu2(value); });
    case ActivationFunction::gelu_tanh:
      return activate(row, [](Vec value) { return gelu_tanh(value); });
    case ActivationFunction::gelu:
      return activate(row, [](Vec value) { return gelu(value); });
    case ActivationFunction::clamped_swiglu:
      return activate_clamped_swiglu(row);
    case ActivationFunction::limited_silu:
      return activate_limited_silu(row);
  }
  __builtin_trap();
}

}  // namespace

template <typename T>
struct VectorRoute<vector_isa, ActivationRow<T>> {
  static void run(const ActivationRow<T>& job) { activate(job); }
};
template struct VectorRoute<vector_isa, ActivationRow<float>>;
template struct VectorRoute<vector_isa, ActivationRow<bf16>>;

}  // namespace hyb::kernels
