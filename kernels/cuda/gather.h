#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/half.h"

namespace hyb::kernels::cuda {

/// An IEEE half, as some published weights are.
struct Half {
  std::uint16_t bits;
};

/// y[i,:] = x[rows[i],:] * scale, from S to T, rounded once; a row that x has not is NaN in y.
template <typename S, typename T>
struct Gather {
  const S* x;
  const std::int32_t* rows;
  T* y;
  std::int64_t x_rows, x_stride, y_stride;
  int width;
  float scale;
};

inline constexpr int gather_elements = 8;  ///< of a thread
inline constexpr int gather_threads = 128;

template <bool Aligned, typename S>
__device__ __forceinline__ void gather_load(const S* from, int left,
                                            float (&values)[gather_elements]) {
  if constexpr (std::is_same_v<S, Half>) {
    for (int i = 0; i < gather_elements; ++i) {
      values[i] = i < left ? half_to_float(from[i].bits) : 0.0F;
    }
  } else {
    load_eight<Aligned>(from, left, values);
  }
}

/// grid (rows, pieces of the width): a thread owns neighbouring elements of one row.
template <typename S, typename T, bool Aligned>
__global__ void __launch_bounds__(gather_threads) gather_kernel(const Gather<S, T> p) {
  const int column = static_cast<int>(blockIdx.y * gather_threads + threadIdx.x) * gather_elements;
  const std::int64_t i = blockIdx.x;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (column >= p.width) return;
  const std::int64_t row = p.rows[i];
  float values[gather_elements];
  if (row >= 0 && row < p.x_rows) {
    gather_load<Aligned>(p.x + row * p.x_stride + column, p.width - column, values);
    for (float& value : values) value *= p.scale;
  } else {
    for (float& value : values) value = std::numeric_limits<float>::quiet_NaN();
  }
  store_eight<Aligned>(p.y + i * p.y_stride + column, p.width - column, values);
}

template <typename S, typename T>
void gather(Stream& stream, std::int64_t count, const Gather<S, T>& params) {
  if (count == 0 || params.width == 0) return;
  const bool is_aligned = params.width % gather_elements == 0 &&
                          is_vector_aligned(params.x, params.x_stride) &&
                          is_vector_aligned(params.y, params.y_stride);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(count),
                         pieces(params.width, gather_threads * gather_elements)),
          .threads = gather_threads,
          .starts_early = true},
         is_aligned ? gather_kernel<S, T, true> : gather_kernel<S, T, false>, params);
}

}  // namespace hyb::kernels::cuda
