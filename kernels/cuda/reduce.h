#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// The sum over the warp, in every lane, always in the same order.
__device__ __forceinline__ float warp_sum(float value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}

/// `Count` sums over the warp at once (a power of two, at most 32), each in the order of warp_sum:
/// lane l gets sum l * Count / 32. `values` is used up.
template <int Count>
__device__ __forceinline__ float warp_sums(float (&values)[Count]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int bits = warp_size / 2;
#pragma unroll
  for (int half = Count / 2; half > 0; half /= 2, bits /= 2) {
    const bool is_upper = (lane & bits) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = is_upper ? values[i] : values[i + half];
      const float kept = is_upper ? values[i + half] : values[i];
      values[i] = kept + shuffle_xor(given, bits);
    }
  }
  for (; bits > 0; bits /= 2) values[0] += shuffle_xor(values[0], bits);
  return values[0];
}

}  // namespace hyb::kernels::cuda
