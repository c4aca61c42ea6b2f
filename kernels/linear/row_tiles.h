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
