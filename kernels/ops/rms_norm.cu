#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr std::int64_t width_of_a_warp = 1024;  ///< wider slices take a whole block

template <typename T>
struct Params {
  const T* x;
  const T* added;  // null: a plain norm
  T* sum;          // what is normed; x itself for a plain norm
  const float* weight;
  T* y;
  std::int64_t x_stride, added_stride, y_stride, slices;
  int slices_per_row, width;
  float scale, eps, weight_offset;
};

/// Warps 1: a warp owns a slice; 8: a block does. A lane owns the same elements in both passes, so
/// that it reads back only what it wrote itself. Within (width + 8) * 2^-24 of the exact answer,
/// relatively, besides the roundings that the contracts name.
template <typename T, int Warps, bool Aligned>
__global__ void __launch_bounds__(block_warps* warp_size) rms_norm_kernel(const Params<T> p) {
  constexpr int step = vector_size<T> * warp_size * Warps;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t slice =
      static_cast<std::int64_t>(blockIdx.x) * (block_warps / Warps) + warp / Warps;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (slice >= p.slices) return;  // whole warps, and never with Warps 8
  const std::int64_t row = slice / p.slices_per_row;
  const std::int64_t column = slice % p.slices_per_row * p.width;
  const int first = (warp % Warps * warp_size + lane) * vector_size<T>;
  const T* const x = p.x + row * p.x_stride + column;

  float squares = 0.0F;
  for (int i = first; i < p.width; i += step) {
    float values[vector_size<T>];
    load_values<Aligned>(x + i, p.width - i, values);
    if (p.added != nullptr) {
      float added[vector_size<T>];
      load_values<Aligned>(p.added + row * p.added_stride + i, p.width - i, added);
      for (int j = 0; j < vector_size<T>; ++j) {
        values[j] = to_float(rounded<T>(values[j] + p.scale * added[j]));
      }
      store_values<Aligned>(p.sum + row * p.x_stride + i, p.width - i, values);
    }
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

  const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.width) + p.eps);
  const T* const normed = p.sum + row * p.x_stride + column;
  for (int i = first; i < p.width; i += step) {
    float values[vector_size<T>];
    load_values<Aligned>(normed + i, p.width - i, values);
    for (int j = 0; j < vector_size<T>; ++j) {
      const float weight = i + j < p.width ? p.weight[i + j] : 0.0F;
      values[j] = values[j] * scale * (p.weight_offset + weight);
    }
    store_values<Aligned>(p.y + row * p.y_stride + column + i, p.width - i, values);
  }
}

template <typename T, int Warps>
void run(Stream& stream, const Params<T>& params) {
  const bool is_aligned =
      params.width % vector_size<T> == 0 && is_vector_aligned(params.x, params.x_stride) &&
      is_vector_aligned(params.y, params.y_stride) &&
      (params.added == nullptr || is_vector_aligned(params.added, params.added_stride));
  launch(stream,
         {.blocks = pieces(params.slices, block_warps / Warps),
          .threads = block_warps * warp_size,
          .starts_early = true},
         is_aligned ? rms_norm_kernel<T, Warps, true> : rms_norm_kernel<T, Warps, false>, params);
}

template <typename T>
void run(Stream& stream, const Params<T>& params) {
  if (params.slices == 0) return;
  if (params.width <= width_of_a_warp) return run<T, 1>(stream, params);
  run<T, block_warps>(stream, params);
}

}  // namespace

void rms_norm(Stream& stream, const RmsNorm& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    run<T>(stream, {.x = op.x.as<T>(),
                    .added = nullptr,
                    .sum = op.x.as<T>(),
                    .weight = op.weight.as<float>(),
                    .y = op.y.as<T>(),
                    .x_stride = op.x.row_stride,
                    .added_stride = 0,
                    .y_stride = op.y.row_stride,
                    .slices = op.x.dim(0) * op.heads,
                    .slices_per_row = static_cast<int>(op.heads),
                    .width = static_cast<int>(op.x.dim(1) / op.heads),
                    .scale = 1.0F,
                    .eps = op.eps,
                    .weight_offset = op.one_plus ? 1.0F : 0.0F});
  });
}

void add_norm(Stream& stream, const AddNorm& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    run<T>(stream, {.x = op.x.as<T>(),
                    .added = op.added.as<T>(),
                    .sum = op.x.as<T>(),
                    .weight = op.weight.as<float>(),
                    .y = op.y.as<T>(),
                    .x_stride = op.x.row_stride,
                    .added_stride = op.added.row_stride,
                    .y_stride = op.y.row_stride,
                    .slices = op.x.dim(0),
                    .slices_per_row = 1,
                    .width = static_cast<int>(op.x.dim(1)),
                    .scale = op.scale,
                    .eps = op.eps,
                    .weight_offset = op.one_plus ? 1.0F : 0.0F});
  });
}

}  // namespace hyb::kernels::cuda
