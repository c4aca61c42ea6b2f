#pragma once

#include <cmath>

#include "kernels/cuda/attention_work.h"

namespace hyb::kernels::cuda {

/// The arithmetic of a running maximum, the same in every route, and spelled so that no compiler
/// fuses it in one place and not in another.

inline constexpr float no_score = -__builtin_inff();

/// A maximum that can be subtracted: rows without a key have none.
__device__ __forceinline__ float subtrahend(float largest) {
  return largest == no_score ? 0.0F : largest;
}

/// What sums made under `from` are worth under a maximum that is at least as large. 1 exactly where
/// the maximum is the same, 0 where `from` had no key.
__device__ __forceinline__ float shrink_of(float from, float to, float scale) {
  return exp2_fast((from - subtrahend(to)) * scale);
}

__device__ __forceinline__ float merged(float total, float keep, float part, float add) {
  return fmaf(part, add, total * keep);
}

/// The sum of a row's weights, a sink's with it: a score that takes weight and has no value.
__device__ __forceinline__ float weights_with_sink(float weights, float largest, float scale,
                                                   const float* sink) {
  constexpr float log2_e = 1.44269504F;
  return sink == nullptr ? weights : weights + exp2_fast(fmaf(-largest, scale, *sink * log2_e));
}

}  // namespace hyb::kernels::cuda
