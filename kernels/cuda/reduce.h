#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// The sum over the warp, in every lane, always in the same order.
__device__ __forceinline__ float warp_sum(float value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}

}  // namespace hyb::kernels::cuda
