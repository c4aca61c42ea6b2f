#include "kernels/cuda/launch.h"
#include "kernels/linear/dense.h"

namespace hyb::kernels::cuda {
namespace {

/// A block of WarpRows x WarpColumns warps, each with TilesM x TilesN products of 16x8.
template <int WarpRows, int WarpColumns, int TilesM, int TilesN>
struct Tile {
  static constexpr int warp_columns = WarpColumns, tiles_m = TilesM, tiles_n = TilesN;
  static constexpr int tokens = WarpRows * TilesM * 16;
  static constexpr int outputs = WarpColumns * TilesN * 8;
  static constexpr int threads = WarpRows * WarpColumns * warp_size;
};

/// Two steps of the matrix instructions between barriers, and 80 KB for the wide tile: sm_86 and
/// sm_89 have 99 KB for a block, so a step of 64 would leave them too few stages.
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

/// Copies k .. k+k_step-1 of `Rows` rows, of which row i is row_of(i), or is zero if that is
/// negative.
template <int Rows, int Threads, typename RowOf>
__device__ __forceinline__ void copy_rows(Stage<Rows>& to, const bf16* from, std::int64_t stride,
                                          RowOf&& row_of, int k, int inner) {
  constexpr int chunks = k_step / chunk;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += Threads) {
    const int column = i % chunks * chunk, row = row_of(i / chunks);
    const bool is_there = row >= 0 && k + column < inner;
    cp_async16(&to[i / chunks][column], from + (is_there ? row * stride + k + column : 0),
               is_there);
  }
}

/// Where a tile's row of W stands. With silu_gated, 8 gates and their 8 ups take turns, so that a
/// thread gets both sums of an element of y.
template <typename Y>
__device__ __forceinline__ int weight_row(const Dense<bf16, Y>& p, int output) {
  if (p.epilogue != Epilogue::silu_gated) return output < p.outputs ? output : -1;
  const int column = output / 16 * 8 + output % 8;
  return column < p.columns ? column + output / 8 % 2 * p.columns : -1;
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

/// Writes the thread's elements of the tile whose corner is (token, output).
template <typename T, typename Y>
__device__ __forceinline__ void write_sums(const Dense<bf16, Y>& p, int token, int output,
                                           const float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int m = 0; m < T::tiles_m; ++m) {
#pragma unroll
    for (int n = 0; n < T::tiles_n; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = token + m * 16 + lane / 4 + i / 2 * 8;
        const int column = lane % 4 * 2 + i % 2;
        if (p.epilogue == Epilogue::silu_gated) {
          write(p, row, (output + n * 8) / 2 + column, sums[m][n][i], sums[m][n + 1][i]);
        } else {
          write(p, row, output + n * 8 + column, sums[m][n][i], 0.0F);
          write(p, row, output + n * 8 + 8 + column, sums[m][n + 1][i], 0.0F);
        }
      }
    }
  }
}

/// A block owns a tile of y and walks k through a ring of stages. Sums of one element are added in
/// ascending k in every tile size, so a row's answer does not depend on the rows beside it. Within
/// (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, besides the roundings.
template <typename T, typename Y>
__global__ void __launch_bounds__(T::threads) matrix_kernel(const Dense<bf16, Y> p) {
  auto& shared = dynamic_shared<Shared<T>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int token = static_cast<int>(blockIdx.y) * T::tokens;
  const int output = static_cast<int>(blockIdx.x) * T::outputs;
  const int warp_token = warp / T::warp_columns * T::tiles_m * 16;
  const int warp_output = warp % T::warp_columns * T::tiles_n * 8;
  const auto* const weight = static_cast<const bf16*>(p.weight);
  const int steps = (p.inner + k_step - 1) / k_step;
  const auto copy_weight = [&](int step) {
    if (step >= steps) return;
    copy_rows<T::outputs, T::threads>(
        shared.weight[step % stages], weight, p.inner,
        [&](int row) { return weight_row(p, output + row); }, step * k_step, p.inner);
  };
  const auto copy_x = [&](int step) {
    if (step < steps) {
      copy_rows<T::tokens, T::threads>(
          shared.x[step % stages], p.x, p.x_stride,
          [&](int row) { return token + row < p.tokens ? token + row : -1; }, step * k_step,
          p.inner);
    }
    cp_async_commit();
  };

  float sums[T::tiles_m][T::tiles_n][4] = {};
  let_next_kernel_start();
  for (int step = 0; step < stages - 1; ++step) copy_weight(step);
  wait_for_previous_kernel();
  for (int step = 0; step < stages - 1; ++step) copy_x(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    sync_block();  // the stage is there for all, and all have left the one that is filled next
    copy_weight(step + stages - 1);
    copy_x(step + stages - 1);
    multiply<T>(shared.x[step % stages], shared.weight[step % stages], warp_token, warp_output,
                sums);
  }
  write_sums<T>(p, token + warp_token, output + warp_output, sums);
}

template <typename T, typename Y>
void run_tile(Stream& stream, const Dense<bf16, Y>& dense) {
  // With silu_gated a last half of 8 outputs has a tile too.
  const std::int64_t outputs =
      dense.epilogue == Epilogue::silu_gated ? (dense.columns + 7) / 8 * 16 : dense.outputs;
  launch(stream,
         {.blocks = dim3(pieces(outputs, T::outputs), pieces(dense.tokens, T::tokens)),
          .threads = T::threads,
          .shared_bytes = sizeof(Shared<T>),
          .starts_early = true},
         matrix_kernel<T, Y>, dense);
}

using WideTile = Tile<2, 4, 4, 4>;    ///< 128 x 128
using NarrowTile = Tile<1, 4, 2, 2>;  ///< 32 x 64: few tokens, so more blocks share the weight
constexpr int narrow_tokens_max = 64;

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense) {
  if (dense.tokens <= narrow_tokens_max) return run_tile<NarrowTile>(stream, dense);
  run_tile<WideTile>(stream, dense);
}

}  // namespace

void run_matrix(Stream& stream, const Dense<bf16, bf16>& dense) { run(stream, dense); }
void run_matrix(Stream& stream, const Dense<bf16, float>& dense) { run(stream, dense); }

}  // namespace hyb::kernels::cuda
