#pragma once

#include <cstdint>

namespace hyb::kernels {

/// The function of an activation. A new one is a line here and in name_of, and a line in each
/// backend: the plain loop (ops/gated_activation.cpp), vectors (ops/gated_activation_simd.h) and
/// CUDA (cuda/activation.h). Each is a switch without a default, so that a backend that lacks the
/// line does not compile where warnings are errors.
enum class ActivationFunction : std::uint8_t {
  silu,   ///< f(v) = v / (1 + exp(-v))
  relu2,  ///< f(v) = max(v, 0)^2
};

/// Null for a value that is no function: no op takes it.
constexpr const char* name_of(ActivationFunction function) {
  switch (function) {
    case ActivationFunction::silu:
      return "silu";
    case ActivationFunction::relu2:
      return "relu2";
  }
  return nullptr;
}

/// y[i] = f(x[i]), or gated y[i] = f(x[i]) * x[I+i]: the gate's columns come first.
struct Activation {
  ActivationFunction function = ActivationFunction::silu;
  bool gated = true;

  /// Columns of x for each column of y.
  constexpr std::int64_t inputs() const { return gated ? 2 : 1; }
  friend constexpr bool operator==(const Activation&, const Activation&) = default;
};

}  // namespace hyb::kernels
