#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// log(1 + exp(v)), or v where it is above 20; NaN stays NaN.
__device__ __forceinline__ float softplus(float v) { return v > 20.0F ? v : log1pf(expf(v)); }

}  // namespace hyb::kernels::cuda
