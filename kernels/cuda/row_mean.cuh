#pragma once

#include "kernels/cuda/reduce.h"

namespace hyb::kernels::cuda {

/// Threads of a block that has a row.
inline constexpr int row_warps = 8, row_threads = row_warps * warp_size;

/// The mean of term(i) over the row, in every thread of the block; `partial` [row_warps], shared,
/// is for this sum alone.
template <typename Term>
__device__ __forceinline__ float row_mean(int width, float* partial, Term&& term) {
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += row_threads) sum += term(i);
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = sum;
  sync_block();
  sum = 0.0F;
  for (int warp = 0; warp < row_warps; ++warp) sum += partial[warp];
  return sum / static_cast<float>(width);
}

struct RowMoments {
  float mean, variance;
};

/// The mean of value(i) and of its squared distance from that; `partials` [2 * row_warps], shared.
template <typename Value>
__device__ __forceinline__ RowMoments row_moments(int width, float* partials, Value&& value) {
  const float mean = row_mean(width, partials, value);
  const float variance = row_mean(width, partials + row_warps, [&](int i) {
    const float centred = value(i) - mean;
    return centred * centred;
  });
  return {mean, variance};
}

}  // namespace hyb::kernels::cuda
