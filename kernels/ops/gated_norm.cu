#include "kernels/cuda/activation.h"
#include "kernels/cuda/norm_slices.h"
#include "kernels/cuda/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename T>
struct Params {
  const T *x, *gate;
  const float* weight;
  T* y;
  std::int64_t x_stride, gate_stride, y_stride, slices;
  int slices_per_row, width;
  float eps;
  bool norm_first, sigmoid_gate;
};

/// Within (width + 16) * 2^-24 + 2^-19 of the exact answer, relatively, not counting the rounding
/// of y.
template <typename T, int Warps, bool Aligned>
__global__ void __launch_bounds__(norm_threads, 4) gated_norm_kernel(const Params<T> p) {
  const std::int64_t slice = norm_slice_index<Warps>();
  start_next_and_wait();
  if (slice >= p.slices) return;
  const std::int64_t row = slice / p.slices_per_row;
  const std::int64_t column = slice % p.slices_per_row * p.width;
  const T* const x = p.x + row * p.x_stride + column;
  const T* const gate = p.gate + row * p.gate_stride + column;
  const auto apply_gate = [&](int i, float(&values)[vector_size<T>]) {
    float z[vector_size<T>];
    load_values<Aligned>(gate + i, p.width - i, z);
    for (int j = 0; j < vector_size<T>; ++j)
      values[j] *= p.sigmoid_gate ? sigmoid(z[j]) : silu(z[j]);
  };
  const auto load = [&](int i, float(&values)[vector_size<T>]) {
    load_values<Aligned>(x + i, p.width - i, values);
    if (!p.norm_first) apply_gate(i, values);
  };
  const auto store = [&](int i, float(&values)[vector_size<T>], float scale) {
    for (int j = 0; j < vector_size<T>; ++j) {
      values[j] *= scale * (i + j < p.width ? p.weight[column + i + j] : 0.0F);
    }
    if (p.norm_first) apply_gate(i, values);
    store_values<Aligned>(p.y + row * p.y_stride + column + i, p.width - i, values);
  };
  norm_slice<T, Warps>(p.width, p.eps, load, store);
}

template <typename T>
void run(Stream& stream, const GatedNorm& op) {
  const Params<T> params = {.x = op.x.as<T>(),
                            .gate = op.gate.as<T>(),
                            .weight = op.weight.as<float>(),
                            .y = op.y.as<T>(),
                            .x_stride = op.x.row_stride,
                            .gate_stride = op.gate.row_stride,
                            .y_stride = op.y.row_stride,
                            .slices = op.x.dim(0) * op.groups,
                            .slices_per_row = static_cast<int>(op.groups),
                            .width = static_cast<int>(op.x.dim(1) / op.groups),
                            .eps = op.eps,
                            .norm_first = op.norm_first,
                            .sigmoid_gate = op.sigmoid_gate};
  const bool is_aligned = params.width % vector_size<T> == 0 &&
                          is_vector_aligned(params.x, params.x_stride) &&
                          is_vector_aligned(params.gate, params.gate_stride) &&
                          is_vector_aligned(params.y, params.y_stride);
  launch_norm(stream, params, params.slices, params.width,
              is_aligned ? gated_norm_kernel<T, 1, true> : gated_norm_kernel<T, 1, false>,
              is_aligned ? gated_norm_kernel<T, norm_warps, true>
                         : gated_norm_kernel<T, norm_warps, false>);
}

}  // namespace

void gated_norm(Stream& stream, const GatedNorm& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, op); });
}

}  // namespace hyb::kernels::cuda
