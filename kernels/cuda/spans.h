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

}  // namespace hyb::kernels::cuda
