#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/row_mean.cuh"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int streams_max = static_cast<int>(altup_streams_max);
constexpr int column_threads = 128;

template <typename T>
struct AltupParams {
  const T* x;
  T *y, *h;
  const float *router, *coefs, *scale;
  std::int64_t x_stride, y_stride, h_stride, router_stride, coefs_stride;
  int streams, width, active;
};

/// scale: null in a prediction.
template <typename T, typename Op>
AltupParams<T> params_of(const Op& op, const float* scale) {
  return {.x = op.x.template as<T>(),
          .y = op.y.template as<T>(),
          .h = op.h.template as<T>(),
          .router = op.router.template as<float>(),
          .coefs = op.coefs.template as<float>(),
          .scale = scale,
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .h_stride = op.h.row_stride,
          .router_stride = op.router.row_stride,
          .coefs_stride = op.coefs.row_stride,
          .streams = static_cast<int>(op.router.dim(1)),
          .width = static_cast<int>(op.h.dim(1)),
          .active = static_cast<int>(op.active)};
}

/// A row of the coefficients times the router's weights.
template <typename T>
__device__ __forceinline__ float coefficient(const AltupParams<T>& p, std::int64_t token, int row) {
  const float* const said = p.router + token * p.router_stride;
  const float* const coefs = p.coefs + row * p.coefs_stride;
  float sum = 0.0F;
  for (int k = 0; k < p.streams; ++k) sum = fmaf(coefs[k], tanhf(said[k]), sum);
  return sum;
}

/// grid (tokens, pieces of the width)
template <typename T>
__global__ void __launch_bounds__(column_threads) altup_predict_kernel(const AltupParams<T> p) {
  auto& c = shared_object<SharedArray<float, streams_max * streams_max>>();
  const std::int64_t token = blockIdx.x;
  start_next_and_wait();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < p.streams * p.streams) c[thread] = coefficient(p, token, thread);
  sync_block();
  const int column = static_cast<int>(blockIdx.y) * column_threads + thread;
  if (column >= p.width) return;
  float x[streams_max];
#pragma unroll
  for (int i = 0; i < streams_max; ++i) {
    x[i] = i < p.streams ? to_float(p.x[token * p.x_stride + i * p.width + column]) : 0.0F;
  }
#pragma unroll
  for (int j = 0; j < streams_max; ++j) {
    if (j >= p.streams) break;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < streams_max; ++i) {
      if (i < p.streams) sum = fmaf(c[j * p.streams + i], x[i], sum);
    }
    const T y = rounded<T>(x[j] + sum);
    p.y[token * p.y_stride + j * p.width + column] = y;
    if (j == p.active) p.h[token * p.h_stride + column] = y;
  }
}

/// grid (tokens, pieces of the width)
template <typename T>
__global__ void __launch_bounds__(column_threads) altup_correct_kernel(const AltupParams<T> p) {
  auto& c = shared_object<SharedArray<float, streams_max>>();
  const std::int64_t token = blockIdx.x;
  start_next_and_wait();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < p.streams) c[thread] = 1.0F + coefficient(p, token, thread);
  sync_block();
  const int column = static_cast<int>(blockIdx.y) * column_threads + thread;
  if (column >= p.width) return;
  const T* const x = p.x + token * p.x_stride + column;
  T* const y = p.y + token * p.y_stride + column;
  T* const h = p.h + token * p.h_stride + column;
  const float news = to_float(*h) - to_float(x[p.active * p.width]);
  for (int j = 0; j < p.streams; ++j) {
    const T corrected = rounded<T>(fmaf(c[j], news, to_float(x[j * p.width])));
    y[j * p.width] = corrected;
    if (j != p.active) continue;
    const float scale = p.scale == nullptr ? 1.0F : p.scale[column];
    *h = rounded<T>(to_float(corrected) * scale);
  }
}

template <typename Kernel, typename Params>
void launch_columns(Stream& stream, const Kernel& kernel, const Params& params,
                    std::int64_t tokens) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tokens), pieces(params.width, column_threads)),
          .threads = column_threads},
         kernel, params);
}

template <typename T>
struct RowPair {
  T* to;
  const T* from;
  std::int64_t to_stride, from_stride;
  int width;
  float scale;
};

/// A block for each row; a thread writes only what it alone read.
template <typename T>
__global__ void __launch_bounds__(row_threads) match_magnitude_kernel(const RowPair<T> p) {
  auto& partials = shared_object<SharedArray<float, 2 * row_warps>>();
  T* const x = p.to + blockIdx.x * p.to_stride;
  const T* const like = p.from + blockIdx.x * p.from_stride;
  start_next_and_wait();
  const auto square_of = [](T number) { return to_float(number) * to_float(number); };
  const float wanted = row_mean(p.width, &partials[0], [&](int i) { return square_of(like[i]); });
  const float found =
      row_mean(p.width, &partials[row_warps], [&](int i) { return square_of(x[i]); });
  const float factor = sqrtf(wanted) / sqrtf(found < 1e-5F ? 1e-5F : found);
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += row_threads) {
    x[i] = rounded<T>(to_float(x[i]) * factor);
  }
}

template <typename T>
__global__ void __launch_bounds__(row_threads) add_rows_kernel(const RowPair<T> p) {
  T* const y = p.to + blockIdx.x * p.to_stride;
  const T* const x = p.from + blockIdx.x * p.from_stride;
  start_next_and_wait();
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += row_threads) {
    y[i] = rounded<T>(to_float(rounded<T>(to_float(y[i]) + to_float(x[i]))) * p.scale);
  }
}

template <typename T>
RowPair<T> pair_of(const Tensor& to, const Tensor& from, float scale) {
  return {.to = to.as<T>(),
          .from = from.as<T>(),
          .to_stride = to.row_stride,
          .from_stride = from.row_stride,
          .width = static_cast<int>(to.dim(1)),
          .scale = scale};
}

template <typename Kernel, typename Params>
void launch_rows(Stream& stream, const Kernel& kernel, const Params& params, std::int64_t rows) {
  launch(stream, {.blocks = static_cast<unsigned>(rows), .threads = row_threads}, kernel, params);
}

}  // namespace

void altup_predict(Stream& stream, const AltupPredict& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch_columns(stream, altup_predict_kernel<T>, params_of<T>(op, nullptr), op.x.dim(0));
  });
}

void altup_correct(Stream& stream, const AltupCorrect& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch_columns(stream, altup_correct_kernel<T>, params_of<T>(op, op.scale.as<float>()),
                   op.x.dim(0));
  });
}

void match_magnitude(Stream& stream, const MatchMagnitude& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch_rows(stream, match_magnitude_kernel<T>, pair_of<T>(op.x, op.like, 1.0F), op.x.dim(0));
  });
}

void add_rows(Stream& stream, const AddRows& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    launch_rows(stream, add_rows_kernel<T>, pair_of<T>(op.y, op.x, op.scale), op.x.dim(0));
  });
}

}  // namespace hyb::kernels::cuda
