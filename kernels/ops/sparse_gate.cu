#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/row_mean.cuh"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename T>
struct SparseGateParams {
  T* x;
  std::int64_t stride;
  int width;
  float deviations;
};

/// A block for each row; a thread writes only what it alone read.
template <typename T>
__global__ void __launch_bounds__(row_threads) sparse_gate_kernel(const SparseGateParams<T> p) {
  auto& partials = shared_object<SharedArray<float, 2 * row_warps>>();
  T* const x = p.x + blockIdx.x * p.stride;
  start_next_and_wait();
  const auto [mean, variance] =
      row_moments(p.width, &partials[0], [&](int i) { return to_float(x[i]); });
  const float cutoff = mean + p.deviations * sqrtf(variance);
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += row_threads) {
    const float above = to_float(x[i]) - cutoff;
    x[i] = rounded<T>(above <= 0.0F ? 0.0F : above);
  }
}

}  // namespace

void sparse_gate(Stream& stream, const SparseGate& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch(stream, {.blocks = static_cast<unsigned>(op.x.dim(0)), .threads = row_threads},
           sparse_gate_kernel<T>,
           SparseGateParams<T>{.x = op.x.as<T>(),
                               .stride = op.x.row_stride,
                               .width = static_cast<int>(op.x.dim(1)),
                               .deviations = op.deviations});
  });
}

}  // namespace hyb::kernels::cuda
