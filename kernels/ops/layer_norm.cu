#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/row_mean.cuh"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename T>
struct LayerNormParams {
  const T* x;
  const float* weight;
  T* y;
  std::int64_t x_stride, y_stride;
  int width;
  float eps;
};

/// A block for each row; a thread writes only what it alone read.
template <typename T>
__global__ void __launch_bounds__(row_threads) layer_norm_kernel(const LayerNormParams<T> p) {
  auto& partials = shared_object<SharedArray<float, 2 * row_warps>>();
  const T* const x = p.x + blockIdx.x * p.x_stride;
  T* const y = p.y + blockIdx.x * p.y_stride;
  start_next_and_wait();
  const auto [mean, variance] =
      row_moments(p.width, &partials[0], [&](int i) { return to_float(x[i]); });
  const float scale = 1.0F / sqrtf(variance + p.eps);
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += row_threads) {
    y[i] = rounded<T>((to_float(x[i]) - mean) * scale * p.weight[i]);
  }
}

}  // namespace

void layer_norm(Stream& stream, const LayerNorm& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch(stream, {.blocks = static_cast<unsigned>(op.x.dim(0)), .threads = row_threads},
           layer_norm_kernel<T>,
           LayerNormParams<T>{.x = op.x.as<T>(),
                              .weight = op.weight.as<float>(),
                              .y = op.y.as<T>(),
                              .x_stride = op.x.row_stride,
                              .y_stride = op.y.row_stride,
                              .width = static_cast<int>(op.x.dim(1)),
                              .eps = op.eps});
  });
}

}  // namespace hyb::kernels::cuda
