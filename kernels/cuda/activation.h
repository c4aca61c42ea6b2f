#pragma once

#include <bit>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// z / (1 + exp(-z)), within 2^-20 relatively; below -87 it may be zero.
__device__ __forceinline__ float silu(float z) { return divide_fast(z, 1.0F + exp_fast(-z)); }

/// 1 / (1 + exp(-z)), within 2^-17 relatively and 2^-21 absolutely; below -87 it may be zero.
__device__ __forceinline__ float sigmoid(float z) { return divide_fast(1.0F, 1.0F + exp_fast(-z)); }

/// tanh(x) within 2^-21, which is that part of a softcap.
__device__ __forceinline__ float tanh_fast(float x) {
  return 1.0F - divide_fast(2.0F, 1.0F + exp_fast(2.0F * x));
}

/// log(1 + exp(v)), or v where it is above 20; NaN stays NaN.
__device__ __forceinline__ float softplus(float v) { return v > 20.0F ? v : log1pf(expf(v)); }

/// The function of an activation, as gated_activation has it. NaN for a value that is none: no
/// launch passes one. All but relu2 end in one division: each would take registers of its own.
__device__ __forceinline__ float activated(const Activation& activation, float value) {
  float above = value, exponent = std::bit_cast<float>(0x7fc00000U);
  switch (activation.function) {
    case ActivationFunction::relu2: {
      const float kept = value > 0.0F || std::isnan(value) ? value : 0.0F;
      return kept * kept;
    }
    case ActivationFunction::silu:
    case ActivationFunction::limited_silu:
      exponent = -value;
      break;
    case ActivationFunction::gelu_tanh:
      exponent = value * (gelu_tanh_linear + gelu_tanh_cubic * value * value);
      break;
    case ActivationFunction::gelu:
      exponent = gelu_exponent(value);
      break;
    case ActivationFunction::clamped_swiglu:
      above = value > activation.limit ? activation.limit : value;
      exponent = -activation.alpha * above;
      break;
  }
  const float result = above / (1.0F + expf(exponent));
  const bool is_above =
      activation.function == ActivationFunction::limited_silu && result > activation.limit;
  return is_above ? activation.limit : result;
}

/// Returns what a gated activation multiplies with.
__device__ __forceinline__ float factor_of(const Activation& activation, float up) {
  if (!activation.is_limited()) return up;
  const float limit = activation.limit;
  const float kept = up > limit ? limit : up < -limit ? -limit : up;
  return activation.function == ActivationFunction::clamped_swiglu ? kept + 1.0F : kept;
}

/// activated(value), times the factor where the activation is gated.
__device__ __forceinline__ float activated(const Activation& activation, float value, float up) {
  const float result = activated(activation, value);
  return activation.gated ? result * factor_of(activation, up) : result;
}

}  // namespace hyb::kernels::cuda
