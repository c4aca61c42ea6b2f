#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// The sum over the warp, in every lane, always in the same order.
__device__ __forceinline__ float warp_sum(float value) {
  for (int bits = warp_size / 2; bits > 0; bits /= 2) value += shuffle_xor(value, bits);
  return value;
}

/// The upper half of the lanes of 2 * Bits takes over the upper Half sums, the lower the others;
/// and so on in halves. By recursion: in a loop nvcc leaves the array in memory.
template <int Half, int Bits, int Count>
__device__ __forceinline__ void fold_sums(float (&values)[Count]) {
  const bool is_upper = (static_cast<int>(threadIdx.x) & Bits) != 0;
#pragma unroll
  for (int i = 0; i < Half; ++i) {
    const float low = values[i], high = values[i + Half];
    values[i] = (is_upper ? high : low) + shuffle_xor(is_upper ? low : high, Bits);
  }
  if constexpr (Half > 1) fold_sums<Half / 2, Bits / 2>(values);
}

/// `Count` sums at once (a power of two, at most Lanes) over each segment of `Lanes` lanes, each in
/// the order of warp_sum: lane l of a segment gets sum l * Count / Lanes. `values` is used up.
template <int Lanes = warp_size, int Count>
__device__ __forceinline__ float warp_sums(float (&values)[Count]) {
  if constexpr (Count > 1) fold_sums<Count / 2, Lanes / 2>(values);
  for (int bits = Lanes / 2 / Count; bits > 0; bits /= 2) {
    values[0] += shuffle_xor(values[0], bits);
  }
  return values[0];
}

}  // namespace hyb::kernels::cuda
