#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.h"

/// Tiles of a matrix product by the matrix instructions: what linear's route for any row count and
/// moe's grouped products share. Included by .cu files only.
namespace hyb::kernels::cuda {

/// A block of WarpRows x WarpColumns warps, each with TilesM x TilesN products of 16x8, and a ring
/// of `Stages` stages of `KStep` elements of k. By default two steps of the matrix instructions
/// between barriers, and 80 KB for 128 x 128: sm_86 and sm_89 have 99 KB for a block.
template <int WarpRows, int WarpColumns, int TilesM, int TilesN, int KStep = 32, int Stages = 4>
struct Tile {
  static constexpr int warp_columns = WarpColumns, tiles_m = TilesM, tiles_n = TilesN;
  static constexpr int tokens = WarpRows * TilesM * 16;
  static constexpr int outputs = WarpColumns * TilesN * 8;
  static constexpr int threads = WarpRows * WarpColumns * warp_size;
  static constexpr int k_step = KStep, stages = Stages;

  /// Where a warp's part of the tile starts.
  static constexpr int first_token(int warp) { return warp / WarpColumns * TilesM * 16; }
  static constexpr int first_output(int warp) { return warp % WarpColumns * TilesN * 8; }
};

inline constexpr int chunk = 8;  ///< elements of one copy

/// A row has 16 bytes more than its elements, so that the 8 rows of a matrix lie in different
/// banks.
template <int Rows, int KStep>
using Stage = SharedArray<SharedArray<bf16, KStep + chunk>, Rows>;

template <typename T>
struct alignas(16) TileShared {
  SharedArray<Stage<T::tokens, T::k_step>, T::stages> x;
  SharedArray<Stage<T::outputs, T::k_step>, T::stages> weight;
};

/// Copies k .. k+KStep-1 of `Rows` rows, of which row i is row_of(i), or is zero if that is
/// negative.
template <int Threads, int Rows, int KStep, typename RowOf>
__device__ __forceinline__ void copy_rows(Stage<Rows, KStep>& to, const bf16* from,
                                          std::int64_t stride, RowOf&& row_of, int k, int inner) {
  constexpr int chunks = KStep / chunk;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += Threads) {
    const int column = i % chunks * chunk, row = row_of(i / chunks);
    const bool is_there = row >= 0 && k + column < inner;
    cp_async16(&to[i / chunks][column], from + (is_there ? row * stride + k + column : 0),
               is_there);
  }
}

/// The warp's products of one stage, in ascending k.
template <typename T>
__device__ __forceinline__ void multiply(Stage<T::tokens, T::k_step>& x,
                                         Stage<T::outputs, T::k_step>& weight, int first_token,
                                         int first_output,
                                         float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < T::k_step; k += 16) {
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

/// Operands of a tile: rows of `inner` elements, a multiple of 8, at multiples of 16 bytes.
struct TileOperands {
  const bf16 *x, *weight;
  std::int64_t x_stride;
  int inner;
};

/// The warp's part of a tile, from rows x_row(i) of x and weight_row(i) of the weight, of which a
/// negative one is zeros. Walks k through a ring of stages: each sum is in ascending k in every
/// tile size. What is loaded before before_x() is the weight.
template <typename T, typename XRow, typename WeightRow, typename BeforeX>
__device__ __forceinline__ void multiply_tile(TileShared<T>& shared, const TileOperands& p,
                                              XRow&& x_row, WeightRow&& weight_row,
                                              BeforeX&& before_x,
                                              float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  constexpr int stages = T::stages;
  const int steps = (p.inner + T::k_step - 1) / T::k_step;
  const auto copy_weight = [&](int step) {
    if (step >= steps) return;
    copy_rows<T::threads, T::outputs, T::k_step>(shared.weight[step % stages], p.weight, p.inner,
                                                 weight_row, step * T::k_step, p.inner);
  };
  const auto copy_x = [&](int step) {
    if (step < steps) {
      copy_rows<T::threads, T::tokens, T::k_step>(shared.x[step % stages], p.x, p.x_stride, x_row,
                                                  step * T::k_step, p.inner);
    }
    cp_async_commit();
  };

  for (int step = 0; step < stages - 1; ++step) copy_weight(step);
  before_x();
  for (int step = 0; step < stages - 1; ++step) copy_x(step);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    sync_block();  // the stage has arrived for all, and all are done with the one that is filled
                   // next
    copy_weight(step + stages - 1);
    copy_x(step + stages - 1);
    multiply<T>(shared.x[step % stages], shared.weight[step % stages], T::first_token(warp),
                T::first_output(warp), sums);
  }
}

}  // namespace hyb::kernels::cuda
