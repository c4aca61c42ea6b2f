#include "kernels/cuda/norm_slices.h"
#include "kernels/cuda/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename T>
struct Params {
  const T* x;
  const float* weight;
  T* y;
  std::int64_t x_stride, y_stride, slices;
  int slices_per_row, width;
  float eps, weight_offset;
  bool add;
  const float* factor;  ///< null: scale
  float scale;
};

/// values = (y + values) * factor, each step rounded to T but for the last one.
template <bool Aligned, typename T>
__device__ __forceinline__ void add_to(const Params<T>& p, std::int64_t row, std::int64_t column,
                                       int left, float (&values)[vector_size<T>]) {
  float sums[vector_size<T>];
  load_values<Aligned>(p.y + row * p.y_stride + column, left, sums);
  for (int j = 0; j < vector_size<T>; ++j) values[j] = sums[j] + to_float(rounded<T>(values[j]));
  const float factor = p.factor == nullptr ? p.scale : *p.factor;
  if (factor == 1.0F) return;
  for (float& value : values) value = to_float(rounded<T>(value)) * factor;
}

/// Within (width + 8) * 2^-24 of the exact answer, relatively, not counting the rounding that the
/// contract names.
template <typename T, int Warps, bool Aligned>
__global__ void __launch_bounds__(norm_threads) rms_norm_kernel(const Params<T> p) {
  const std::int64_t slice = norm_slice_index<Warps>();
  start_next_and_wait();
  if (slice >= p.slices) return;
  const std::int64_t row = slice / p.slices_per_row;
  const std::int64_t column = slice % p.slices_per_row * p.width;
  const T* const x = p.x + row * p.x_stride + column;
  const auto load = [&](int i, float(&values)[vector_size<T>]) {
    load_values<Aligned>(x + i, p.width - i, values);
  };
  const auto store = [&](int i, float(&values)[vector_size<T>], float scale) {
    for (int j = 0; j < vector_size<T>; ++j) {
      const float weight = p.weight != nullptr && i + j < p.width ? p.weight[i + j] : 0.0F;
      values[j] = values[j] * scale * (p.weight_offset + weight);
    }
    if (p.add) add_to<Aligned>(p, row, column + i, p.width - i, values);
    store_values<Aligned>(p.y + row * p.y_stride + column + i, p.width - i, values);
  };
  norm_slice<T, Warps>(p.width, p.eps, load, store);
}

template <typename T>
void run(Stream& stream, const Params<T>& params) {
  const bool is_aligned = params.width % vector_size<T> == 0 &&
                          is_vector_aligned(params.x, params.x_stride) &&
                          is_vector_aligned(params.y, params.y_stride);
  launch_norm(
      stream, params, params.slices, params.width,
      is_aligned ? rms_norm_kernel<T, 1, true> : rms_norm_kernel<T, 1, false>,
      is_aligned ? rms_norm_kernel<T, norm_warps, true> : rms_norm_kernel<T, norm_warps, false>);
}

}  // namespace

void rms_norm(Stream& stream, const RmsNorm& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    run<T>(stream, {.x = op.x.as<T>(),
                    .weight = op.weight.as<float>(),
                    .y = op.y.as<T>(),
                    .x_stride = op.x.row_stride,
                    .y_stride = op.y.row_stride,
                    .slices = op.x.dim(0) * op.heads,
                    .slices_per_row = static_cast<int>(op.heads),
                    .width = static_cast<int>(op.x.dim(1) / op.heads),
                    .eps = op.eps,
                    .weight_offset = weight_offset(op),
                    .add = op.add,
                    .factor = op.factor.as<float>(),
                    .scale = op.scale});
  });
}

}  // namespace hyb::kernels::cuda
