#include <algorithm>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/check.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 256;
constexpr std::int64_t blocks_max = 65536;

template <typename T>
struct Params {
  const T *x, *up;
  T* y;
  std::int64_t x_stride, up_stride, y_stride, rows;
  int width, pieces_per_row;
  Activation activation;
};

/// A thread owns 16 bytes of y at a time. silu is within 4 ulp of the plain loop's, relu2 is the
/// same, the others within their exponent's 2 ulp more, before the one rounding. A thread reads its
/// part of x and up before it writes over it.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(block_threads) gated_activation_kernel(const Params<T> p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  start_next_and_wait();
  for (std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
       piece < p.rows * p.pieces_per_row; piece += step) {
    const std::int64_t row = piece / p.pieces_per_row;
    const int column = static_cast<int>(piece % p.pieces_per_row) * vector_size<T>;
    const int left = p.width - column;
    const T* const x = p.x + row * p.x_stride + column;
    float values[vector_size<T>], up[vector_size<T>];
    load_values<Aligned>(x, left, values);
    for (float& value : values) value = activated(p.activation, value);
    if (p.activation.gated) {
      load_values<Aligned>(p.up + row * p.up_stride + column, left, up);
      for (int i = 0; i < vector_size<T>; ++i) values[i] *= factor_of(p.activation, up[i]);
    }
    store_values<Aligned>(p.y + row * p.y_stride + column, left, values);
  }
}

template <typename T>
void run(Stream& stream, const GatedActivation& op) {
  const std::int64_t width = op.y.dim(1);
  const std::int64_t pieces_per_row = (width + vector_size<T> - 1) / vector_size<T>;
  const bool has_up = !op.up.empty();
  const Params<T> params = {.x = op.x.as<T>(),
                            .up = has_up ? op.up.as<T>() : op.x.as<T>() + width,
                            .y = op.y.as<T>(),
                            .x_stride = op.x.row_stride,
                            .up_stride = has_up ? op.up.row_stride : op.x.row_stride,
                            .y_stride = op.y.row_stride,
                            .rows = op.x.dim(0),
                            .width = static_cast<int>(width),
                            .pieces_per_row = static_cast<int>(pieces_per_row),
                            .activation = op.activation};
  const bool is_aligned = width % vector_size<T> == 0 &&
                          is_vector_aligned(params.x, params.x_stride) &&
                          is_vector_aligned(params.up, params.up_stride) &&
                          is_vector_aligned(params.y, params.y_stride);
  const std::int64_t blocks = (params.rows * pieces_per_row + block_threads - 1) / block_threads;
  launch(stream,
         {.blocks = static_cast<unsigned>(std::min(blocks, blocks_max)), .threads = block_threads},
         is_aligned ? gated_activation_kernel<T, true> : gated_activation_kernel<T, false>, params);
}

}  // namespace

void gated_activation(Stream& stream, const GatedActivation& op) {
  Check("gated_activation").function(op.activation);
  if (op.y.size() == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, op); });
}

}  // namespace hyb::kernels::cuda
