#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// z / (1 + exp(-z)), within 2^-20 relatively; below -87 it may be zero.
__device__ __forceinline__ float silu(float z) { return divide_fast(z, 1.0F + exp_fast(-z)); }

/// 1 / (1 + exp(-z)), within 2^-17 relatively and 2^-21 absolutely; below -87 it may be zero.
__device__ __forceinline__ float sigmoid(float z) { return divide_fast(1.0F, 1.0F + exp_fast(-z)); }

}  // namespace hyb::kernels::cuda
