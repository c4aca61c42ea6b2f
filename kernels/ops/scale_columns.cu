#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 256;
constexpr std::int64_t blocks_max = 65536;
constexpr int segments_max = static_cast<int>(column_segments_max);

template <typename T>
struct Params {
  T* x;
  std::int64_t x_stride, rows;
  int width, pieces_per_row;
  int ends[segments_max];  ///< after the last segment: width
  float factors[segments_max];
};

/// A thread owns 16 bytes of x at a time. The bits of the plain loop.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(block_threads) scale_columns_kernel(const Params<T> p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  start_next_and_wait();
  for (std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
       piece < p.rows * p.pieces_per_row; piece += step) {
    const std::int64_t row = piece / p.pieces_per_row;
    const int column = static_cast<int>(piece % p.pieces_per_row) * vector_size<T>;
    const int left = p.width - column;
    T* const x = p.x + row * p.x_stride + column;
    float values[vector_size<T>];
    load_values<Aligned>(x, left, values);
    for (int i = 0; i < vector_size<T>; ++i) {
      float factor = p.factors[0];
      for (int s = 1; s < segments_max; ++s) {
        if (column + i >= p.ends[s - 1]) factor = p.factors[s];
      }
      values[i] *= factor;
    }
    store_values<Aligned>(x, left, values);
  }
}

template <typename T>
void run(Stream& stream, const ScaleColumns& op) {
  const std::int64_t width = op.x.dim(1);
  const std::int64_t pieces_per_row = (width + vector_size<T> - 1) / vector_size<T>;
  Params<T> params = {.x = op.x.as<T>(),
                      .x_stride = op.x.row_stride,
                      .rows = op.x.dim(0),
                      .width = static_cast<int>(width),
                      .pieces_per_row = static_cast<int>(pieces_per_row),
                      .ends = {},
                      .factors = {}};
  std::int64_t end = 0;
  for (int s = 0; s < segments_max; ++s) {
    const bool is_one = s < static_cast<int>(op.segments.size());
    if (is_one) end += op.segments[static_cast<std::size_t>(s)].columns;
    params.ends[s] = static_cast<int>(end);
    params.factors[s] = is_one ? op.segments[static_cast<std::size_t>(s)].factor : 1.0F;
  }
  const bool is_aligned =
      width % vector_size<T> == 0 && is_vector_aligned(params.x, params.x_stride);
  const std::int64_t blocks = (params.rows * pieces_per_row + block_threads - 1) / block_threads;
  launch(stream,
         {.blocks = static_cast<unsigned>(std::min(blocks, blocks_max)), .threads = block_threads},
         is_aligned ? scale_columns_kernel<T, true> : scale_columns_kernel<T, false>, params);
}

}  // namespace

void scale_columns(Stream& stream, const ScaleColumns& op) {
  if (op.x.size() == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, op); });
}

}  // namespace hyb::kernels::cuda
