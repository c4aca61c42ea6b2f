#pragma once

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// True in all threads of the last of `parts` blocks to come here with a semaphore, which is zero
/// again then; what the others have written before is seen by it.
__device__ __forceinline__ bool is_last_of(int parts, unsigned* semaphore,
                                           SharedArray<int, 1>& vote) {
  sync_block();
  if (threadIdx.x == 0) {
    fence();
    const bool is_last = atomic_add(semaphore, 1U) + 1 == static_cast<unsigned>(parts);
    if (is_last) *semaphore = 0;
    vote[0] = is_last ? 1 : 0;
    fence();
  }
  sync_block();
  return vote[0] != 0;
}

}  // namespace hyb::kernels::cuda
