#pragma once

#include <cmath>

#include "kernels/cuda/ptx.h"
#include "kernels/ops/gated_activation.h"

namespace hyb::kernels::cuda {

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
