#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hyb::kernels {

/// The function of an activation. A new one is a line here and in name_of, and a line in each
/// backend: the plain loop (ops/gated_activation.cpp), vectors (ops/gated_activation_simd.h) and
/// CUDA (cuda/activation.h). Each is a switch without a default, so that a backend that lacks the
/// line does not compile where warnings are errors.
enum class ActivationFunction : std::uint8_t {
  silu,       ///< f(v) = v / (1 + exp(-v))
  relu2,      ///< f(v) = max(v, 0)^2
  gelu_tanh,  ///< f(v) = v / (1 + exp(-2u)), u = sqrt(2 / pi) * (v + 0.044715 * v^3)
  gelu,       ///< f(v) = v * Phi(v), the normal distribution's share below v, within 2^-22 * |v|
  /// gpt-oss has this, always gated: f(v) = g / (1 + exp(-alpha * g)), g = min(v, limit); its
  /// factor is min(max(up, -limit), limit) + 1.
  clamped_swiglu,
  /// Ling 3.0 has this, always gated: f(v) = min(silu(v), limit); its factor is min(max(up,
  /// -limit), limit).
  limited_silu,
};

/// Null for a value that is no function: no op takes it.
constexpr const char* name_of(ActivationFunction function) {
  switch (function) {
    case ActivationFunction::silu:
      return "silu";
    case ActivationFunction::relu2:
      return "relu2";
    case ActivationFunction::gelu_tanh:
      return "gelu_tanh";
    case ActivationFunction::gelu:
      return "gelu";
    case ActivationFunction::clamped_swiglu:
      return "clamped swiglu";
    case ActivationFunction::limited_silu:
      return "limited silu";
  }
  return nullptr;
}

/// y[i] = f(x[i]), or gated y[i] = f(x[i]) * x[I+i]: the gate's columns come first.
struct Activation {
  ActivationFunction function = ActivationFunction::silu;
  bool gated = true;
  float alpha = 1.702F;  ///< of clamped_swiglu, as gpt-oss has it
  float limit = 7.0F;    ///< of the same, and of limited_silu

  constexpr bool is_limited() const {
    return function == ActivationFunction::clamped_swiglu ||
           function == ActivationFunction::limited_silu;
  }
  /// Columns of x for each column of y.
  constexpr std::int64_t inputs() const { return gated ? 2 : 1; }
  friend constexpr bool operator==(const Activation&, const Activation&) = default;
};

/// The constants of gelu_tanh are those of -2u = v * (gelu_tanh_linear + gelu_tanh_cubic * v^2), in
/// f32 in every backend.
inline constexpr float gelu_tanh_linear = -1.59576912F;   ///< -2 * sqrt(2 / pi)
inline constexpr float gelu_tanh_cubic = -0.0713548128F;  ///< 0.044715 of it

/// The constants of gelu: Phi(v) = 1 / (1 + exp(v * p(s))), where s is the smaller of v^2 and this
/// bound, past which Phi is 0 or 1 to 2^-25. p is a polynomial of least error of Phi, its highest
/// power first; in f32 in every backend.
inline constexpr float gelu_square_max = 30.25F;
inline constexpr std::array<float, 7> gelu_slopes = {
    -3.51233953e-09F, 2.64526619e-07F, -7.92948777e-06F, 0.000110612382F,
    6.51899609e-05F,  -0.0726661682F,  -1.59576988F};

/// v * p(s), of the plain loop and of a card.
constexpr float gelu_exponent(float value) {
  constexpr std::array<float, 7> slopes =
      gelu_slopes;  // a card's code has no globals of the host's
  const float square = value * value;
  const float kept = square > gelu_square_max ? gelu_square_max : square;
  float slope = slopes[0];
  for (std::size_t i = 1; i < slopes.size(); ++i) slope = slope * kept + slopes[i];
  return value * slope;
}

}  // namespace hyb::kernels
