#pragma once

#include "kernels/linear/dense.h"

/// Tiles of 16 rows of W times few tokens, a warp's: what the routes that take W as the operand
/// with 16 rows share. Included by .cu files only.
namespace hyb::kernels::cuda {

/// Column of y that row `row` of a tile's low half has; in the high half stand the 8 columns behind
/// them, or their ups with silu_gated.
template <typename Y>
__device__ __forceinline__ int column_of(const Dense<bf16, Y>& p, int tile, int row) {
  return tile * (p.epilogue == Epilogue::silu_gated ? 8 : 16) + row;
}

/// Rows of W of the lane's two rows of a tile; past the end they are the last ones again.
struct TileRows {
  int low, high;
};
template <typename Y>
__device__ __forceinline__ TileRows rows_of(const Dense<bf16, Y>& p, int tile) {
  const int column = column_of(p, tile, static_cast<int>(threadIdx.x) % warp_size / 4);
  const int low = column < p.columns ? column : p.columns - 1;
  if (p.epilogue == Epilogue::silu_gated) return {low, low + p.columns};
  return {low, column + 8 < p.outputs ? column + 8 : p.outputs - 1};
}

template <typename Y>
__device__ __forceinline__ void write_pair(const Dense<bf16, Y>& p, int tile, int token, float low,
                                           float high) {
  const int column = column_of(p, tile, static_cast<int>(threadIdx.x) % warp_size / 4);
  write(p, token, column, low, high);
  if (p.epilogue != Epilogue::silu_gated) write(p, token, column + 8, high, 0.0F);
}

/// Warps' sums of TilesN times 8 tokens, where their pieces of W stood.
template <int TilesN, int Warps>
struct TileSums {
  SharedArray<SharedArray<SharedArray<float, warp_size>, TilesN * 4>, Warps> of;
};

/// Writes 8*TilesN tokens of a tile, from first_token on, as mma_bf16 leaves them in its `split`
/// warps, which lie side by side; where they are several, their sums are added up in their order.
/// By the whole block, which has read all that it will of W.
template <int Warps, int TilesN, typename Y>
__device__ __forceinline__ void write_tile(const Dense<bf16, Y>& p, int tile, int first_token,
                                           int split, const float (&sums)[TilesN][4]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size, member = warp % split;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const auto token_of = [&](int i) { return first_token + i / 2 * 8 + lane % 4 * 2 + i % 2; };
  if (split == 1) {
#pragma unroll
    for (int i = 0; i < TilesN * 2; ++i) {
      write_pair(p, tile, token_of(i), sums[i / 2][i % 2], sums[i / 2][i % 2 + 2]);
    }
    return;
  }
  cp_async_wait<0>();
  sync_block();  // no copy arrives any more, and all have left what the sums take the place of
  auto& partial = dynamic_shared<TileSums<TilesN, Warps>>().of;
#pragma unroll
  for (int i = 0; i < TilesN * 4; ++i) partial[warp][i][lane] = sums[i / 4][i % 4];
  sync_block();
  for (int i = member; i < TilesN * 2; i += split) {
    float sum[2] = {};
    for (int j = warp - member; j < warp - member + split; ++j) {
      sum[0] += partial[j][i / 2 * 4 + i % 2][lane];
      sum[1] += partial[j][i / 2 * 4 + i % 2 + 2][lane];
    }
    write_pair(p, tile, token_of(i), sum[0], sum[1]);
  }
}

/// As few of `warps` warps on a tile as keep every processor busy, a power of two; not by the row
/// count, which no sum may depend on.
inline int warps_of_tile(const Stream& stream, int tiles, int steps, int warps) {
  int split = 1;
  while (split < warps && split < steps &&
         (tiles * split + warps - 1) / warps < stream.processors()) {
    split *= 2;
  }
  return split;
}

}  // namespace hyb::kernels::cuda
