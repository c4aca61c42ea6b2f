#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/half.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

template <typename X, typename Y>
struct Params {
  const X* x;
  const void* weight;
  DType weight_type;
  Y* y;
  std::int64_t x_stride, y_stride;
  int tokens, outputs, inner;
  float scale;
  bool add;
};

template <typename X, typename Y>
__device__ __forceinline__ void write(const Params<X, Y>& p, int token, int output, float sum) {
  if (token >= p.tokens || output >= p.outputs) return;
  Y* const y = p.y + token * p.y_stride + output;
  *y = rounded<Y>((p.add ? to_float(*y) : 0.0F) + p.scale * sum);
}

// The matrix route

/// A block of WarpRows x WarpColumns warps, each with TilesM x TilesN products of 16x8.
template <int WarpRows, int WarpColumns, int TilesM, int TilesN>
struct Tile {
  static constexpr int warp_columns = WarpColumns, tiles_m = TilesM, tiles_n = TilesN;
  static constexpr int tokens = WarpRows * TilesM * 16;
  static constexpr int outputs = WarpColumns * TilesN * 8;
  static constexpr int threads = WarpRows * WarpColumns * warp_size;
};

constexpr int k_step = 32;
constexpr int stages = 4;
/// Elements of a row in shared memory: 80 bytes, so that the 8 rows of a matrix lie in different
/// banks.
constexpr int row_elements = k_step + 8;
constexpr int chunk = 8;  ///< elements of one copy

template <int Rows>
using Stage = SharedArray<SharedArray<bf16, row_elements>, Rows>;

template <typename T>
struct alignas(16) Shared {
  SharedArray<Stage<T::tokens>, stages> x;
  SharedArray<Stage<T::outputs>, stages> weight;
};

/// Copies k .. k+k_step-1 of `Rows` rows; zeros where rows or k end.
template <int Rows, int Threads>
__device__ __forceinline__ void copy_rows(Stage<Rows>& to, const bf16* from, std::int64_t stride,
                                          int rows_left, int k, int inner) {
  constexpr int chunks = k_step / chunk;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += Threads) {
    const int row = i / chunks, column = i % chunks * chunk;
    const bool is_there = row < rows_left && k + column < inner;
    cp_async16(&to[row][column], from + (is_there ? row * stride + k + column : 0), is_there);
  }
}

/// The warp's products of one stage, in ascending k.
template <typename T>
__device__ __forceinline__ void multiply(Stage<T::tokens>& x, Stage<T::outputs>& weight,
                                         int first_token, int first_output,
                                         float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < k_step; k += 16) {
    std::uint32_t a[T::tiles_m][4];
#pragma unroll
    for (int m = 0; m < T::tiles_m; ++m) {
      ldmatrix_x4(a[m], &x[first_token + m * 16 + lane % 16][k + lane / 16 * 8]);
    }
#pragma unroll
    for (int n = 0; n < T::tiles_n; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b,
                  &weight[first_output + n * 8 + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
      for (int m = 0; m < T::tiles_m; ++m) {
        mma_bf16(sums[m][n], a[m], b[0], b[1]);
        mma_bf16(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// A block owns a tile of y and walks k through a ring of stages. Sums of one element are added in
/// ascending k in every tile size, so a row's answer does not depend on the rows beside it. Within
/// (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, besides the rounding of y.
template <typename T, typename Y>
__global__ void __launch_bounds__(T::threads) matrix_kernel(const Params<bf16, Y> p) {
  auto& shared = dynamic_shared<Shared<T>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int token = static_cast<int>(blockIdx.y) * T::tokens;
  const int output = static_cast<int>(blockIdx.x) * T::outputs;
  const int warp_token = warp / T::warp_columns * T::tiles_m * 16;
  const int warp_output = warp % T::warp_columns * T::tiles_n * 8;
  const bf16* const x = p.x + token * p.x_stride;
  const bf16* const weight =
      static_cast<const bf16*>(p.weight) + static_cast<std::int64_t>(output) * p.inner;
  const int steps = (p.inner + k_step - 1) / k_step;
  const auto copy = [&](int step) {
    if (step < steps) {
      copy_rows<T::tokens, T::threads>(shared.x[step % stages], x, p.x_stride, p.tokens - token,
                                       step * k_step, p.inner);
      copy_rows<T::outputs, T::threads>(shared.weight[step % stages], weight, p.inner,
                                        p.outputs - output, step * k_step, p.inner);
    }
    cp_async_commit();
  };

  float sums[T::tiles_m][T::tiles_n][4] = {};
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int step = 0; step < stages - 1; ++step) copy(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    sync_block();  // the stage is there for all, and all have left the one that is filled next
    copy(step + stages - 1);
    multiply<T>(shared.x[step % stages], shared.weight[step % stages], warp_token, warp_output,
                sums);
  }

  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int m = 0; m < T::tiles_m; ++m) {
#pragma unroll
    for (int n = 0; n < T::tiles_n; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        write(p, token + warp_token + m * 16 + lane / 4 + i / 2 * 8,
              output + warp_output + n * 8 + lane % 4 * 2 + i % 2, sums[m][n][i]);
      }
    }
  }
}

template <typename T, typename Y>
void run_tile(Stream& stream, const Params<bf16, Y>& params) {
  launch(stream,
         {.blocks = dim3(pieces(params.outputs, T::outputs), pieces(params.tokens, T::tokens)),
          .threads = T::threads,
          .shared_bytes = sizeof(Shared<T>),
          .starts_early = true},
         matrix_kernel<T, Y>, params);
}

using WideTile = Tile<2, 4, 4, 4>;    ///< 128 x 128
using NarrowTile = Tile<1, 4, 2, 2>;  ///< 32 x 64: few tokens, so more blocks share the weight
constexpr int narrow_tokens_max = 64;

template <typename Y>
void run_matrix(Stream& stream, const Params<bf16, Y>& params) {
  if (params.tokens <= narrow_tokens_max) return run_tile<NarrowTile>(stream, params);
  run_tile<WideTile>(stream, params);
}

// The plain route

__device__ __forceinline__ float weight_at(const void* weight, DType type, std::int64_t i) {
  if (type == DType::f32) return static_cast<const float*>(weight)[i];
  if (type == DType::bf16) return to_float(static_cast<const bf16*>(weight)[i]);
  return half_to_float(static_cast<const std::uint16_t*>(weight)[i]);
}

constexpr int plain_warps = 4;

/// A warp owns one output of one token; a lane every 32nd k. Any type, any alignment. The same
/// bound as the matrix route.
template <typename X, typename Y>
__global__ void __launch_bounds__(plain_warps* warp_size) plain_kernel(const Params<X, Y> p) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int output = static_cast<int>(blockIdx.x) * plain_warps + warp;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (output >= p.outputs) return;
  for (int token = static_cast<int>(blockIdx.y); token < p.tokens;
       token += static_cast<int>(gridDim.y)) {
    const X* const x = p.x + token * p.x_stride;
    const std::int64_t row = static_cast<std::int64_t>(output) * p.inner;
    float sum = 0.0F;
    for (int k = lane; k < p.inner; k += warp_size) {
      sum += to_float(x[k]) * weight_at(p.weight, p.weight_type, row + k);
    }
    sum = warp_sum(sum);
    if (lane == 0) write(p, token, output, sum);
  }
}

constexpr std::int64_t grid_rows_max = 65535;

template <typename X, typename Y>
void run(Stream& stream, const Params<X, Y>& params) {
  if constexpr (std::is_same_v<X, bf16>) {
    const bool is_aligned = params.inner % chunk == 0 &&
                            is_vector_aligned(params.x, params.x_stride) &&
                            is_vector_aligned(static_cast<const bf16*>(params.weight), 0);
    if (params.weight_type == DType::bf16 && is_aligned) return run_matrix(stream, params);
  }
  const auto rows = static_cast<unsigned>(std::min<std::int64_t>(params.tokens, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(params.outputs, plain_warps), rows),
          .threads = plain_warps * warp_size,
          .starts_early = true},
         plain_kernel<X, Y>, params);
}

template <typename X, typename Y>
Params<X, Y> params_of(const Linear& op) {
  const Weight& weight = *op.weight;
  return {.x = op.x.as<X>(),
          .weight = weight.expert(op.expert),
          .weight_type = weight.dtype(),
          .y = op.y.as<Y>(),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .tokens = static_cast<int>(op.x.dim(0)),
          .outputs = static_cast<int>(weight.rows()),
          .inner = static_cast<int>(weight.columns()),
          .scale = op.scale,
          .add = op.add};
}

}  // namespace

void linear(Stream& stream, const Linear& op) {
  require(op.weight->format() == WeightFormat::rows, "linear: CUDA reads weights in rows");
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename X>(Tag<X>) {
    if (op.y.dtype == DType::f32) return run(stream, params_of<X, float>(op));
    run(stream, params_of<X, X>(op));
  });
}

}  // namespace hyb::kernels::cuda
