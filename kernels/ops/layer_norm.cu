#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int layer_norm_warps = 8, layer_norm_threads = layer_norm_warps * warp_size;

template <typename T>
struct LayerNormParams {
  const T* x;
  const float* weight;
  T* y;
  std::int64_t x_stride, y_stride;
  int width;
  float eps;
};

/// The mean of term(i) over the row, in every thread; `partial` is for this sum alone.
template <typename Term>
__device__ __forceinline__ float block_mean(int width, float* partial, Term&& term) {
  float sum = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += layer_norm_threads) sum += term(i);
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = sum;
  sync_block();
  sum = 0.0F;
  for (int warp = 0; warp < layer_norm_warps; ++warp) sum += partial[warp];
  return sum / static_cast<float>(width);
}

/// A block for each row; a thread writes only what it alone read.
template <typename T>
__global__ void __launch_bounds__(layer_norm_threads)
    layer_norm_kernel(const LayerNormParams<T> p) {
  auto& partials = shared_object<SharedArray<float, 2 * layer_norm_warps>>();
  const T* const x = p.x + blockIdx.x * p.x_stride;
  T* const y = p.y + blockIdx.x * p.y_stride;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float mean = block_mean(p.width, &partials[0], [&](int i) { return to_float(x[i]); });
  const float variance = block_mean(p.width, &partials[layer_norm_warps], [&](int i) {
    const float centred = to_float(x[i]) - mean;
    return centred * centred;
  });
  const float scale = 1.0F / sqrtf(variance + p.eps);
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += layer_norm_threads) {
    y[i] = rounded<T>((to_float(x[i]) - mean) * scale * p.weight[i]);
  }
}

}  // namespace

void layer_norm(Stream& stream, const LayerNorm& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch(stream,
           {.blocks = static_cast<unsigned>(op.x.dim(0)),
            .threads = layer_norm_threads,
            .starts_early = true},
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
