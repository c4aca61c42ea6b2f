#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// The span that has `token`, for a whole warp. Spans behind the last token are empty.
__device__ __forceinline__ int span_of(const std::int32_t* span_begin, int spans, int token) {
  unsigned begun = 0;
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < spans; i += warp_size) {
    begun += span_begin[i] <= token ? 1U : 0U;
  }
  return static_cast<int>(reduce_add(begun)) - 1;
}

/// The same by a whole block; `spans` for a token behind the last span.
__device__ __forceinline__ int span_of_by_block(const std::int32_t* span_begin, int spans,
                                                int token) {
  int begun = 0;
  for (int first = 0; first <= spans; first += static_cast<int>(blockDim.x)) {
    const int i = first + static_cast<int>(threadIdx.x);
    begun += sync_block_count(i <= spans && span_begin[i] <= token);
  }
  return begun - 1;
}

}  // namespace hyb::kernels::cuda
