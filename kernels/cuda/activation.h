#pragma once

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "kernels/ops/gated_activation.h"

namespace hyb::kernels::cuda {

/// z / (1 + exp(-z)), within 2^-20 relatively; below -87 it may be zero.
__device__ __forceinline__ float silu(float z) { return divide_fast(z, 1.0F + exp_fast(-z)); }

/// 1 / (1 + exp(-z)), within 2^-17 relatively and 2^-21 absolutely; below -87 it may be zero.
__device__ __forceinline__ float sigmoid(float z) { return divide_fast(1.0F, 1.0F + exp_fast(-z)); }

/// log(1 + exp(v)), or v where it is above 20; NaN stays NaN.
__device__ __forceinline__ float softplus(float v) { return v > 20.0F ? v : log1pf(expf(v)); }

/// silu(gate) * up, as gated_activation has it.
__device__ __forceinline__ float silu_gated(float gate, float up) {
  return gate / (1.0F + expf(-gate)) * up;
}
/// max(value, 0)^2; NaN stays NaN.
__device__ __forceinline__ float relu2(float value) {
  const float kept = value > 0.0F || std::isnan(value) ? value : 0.0F;
  return kept * kept;
}

}  // namespace hyb::kernels::cuda
