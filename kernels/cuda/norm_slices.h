#pragma once

#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vectors.h"

namespace hyb::kernels::cuda {

/// Root-mean-square norms of slices of rows, in blocks of norm_warps: of narrow slices a warp owns
/// one, of wider ones a block does. A lane owns the same elements in both passes, so that it reads
/// back only what it wrote itself.
inline constexpr int norm_warps = 8;
inline constexpr int norm_threads = norm_warps * warp_size;
inline constexpr std::int64_t norm_width_of_a_warp = 1024;

/// The slice of this warp when `Warps` share one: whole warps, and with Warps 8 whole blocks, may
/// find none left.
template <int Warps>
__device__ __forceinline__ std::int64_t norm_slice_index() {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  return static_cast<std::int64_t>(blockIdx.x) * (norm_warps / Warps) + warp / Warps;
}

/// load(i, values) reads elements i .. of the slice, zeros past `width`, in the first pass and
/// again in the second; store(i, values, scale) gets the latter with (mean of the squares
/// + eps)^(-1/2), which is within (width + 8) * 2^-24 of the exact one, relatively.
template <typename T, int Warps, typename Load, typename Store>
__device__ __forceinline__ void norm_slice(int width, float eps, Load&& load, Store&& store) {
  constexpr int step = vector_size<T> * warp_size * Warps;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int first = (warp % Warps * warp_size + lane) * vector_size<T>;
  float squares = 0.0F;
  for (int i = first; i < width; i += step) {
    float values[vector_size<T>];
    load(i, values);
    for (const float value : values) squares += value * value;
  }
  squares = warp_sum(squares);
  if constexpr (Warps > 1) {
    auto& partial = shared_object<SharedArray<float, Warps>>();
    if (lane == 0) partial[warp] = squares;
    sync_block();
    squares = 0.0F;
    for (int i = 0; i < Warps; ++i) squares += partial[i];
  }
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + eps);
  for (int i = first; i < width; i += step) {
    float values[vector_size<T>];
    load(i, values);
    store(i, values, scale);
  }
}

/// Starts the one of the two kernels, of a slice per warp and per block, that the width is for.
template <typename Params>
void launch_norm(Stream& stream, const Params& params, std::int64_t slices, int width,
                 void (*of_warps)(Params), void (*of_blocks)(Params)) {
  if (slices == 0) return;
  const bool is_narrow = width <= norm_width_of_a_warp;
  launch(stream, {.blocks = pieces(slices, is_narrow ? norm_warps : 1), .threads = norm_threads},
         is_narrow ? of_warps : of_blocks, params);
}

}  // namespace hyb::kernels::cuda
