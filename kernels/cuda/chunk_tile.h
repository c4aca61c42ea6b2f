#pragma once

#include "kernels/cuda/ptx.h"
#include "kernels/floats.h"

/// This file has what the recurrences' chunked forms share: tiles of a chunk's tokens in shared
/// memory, for blocks of four warps, and decays from token to token.
namespace hyb::kernels::cuda {

inline constexpr int chunk_tokens = 64;
inline constexpr int chunk_warps = 4;
inline constexpr int chunk_threads = chunk_warps * warp_size;
static_assert(chunk_tokens == chunk_warps * 16);  // a warp owns 16 tokens of y

/// Rows of bf16 in shared memory whose 16-byte vectors lie in different banks for eight rows in a
/// row: exchanged where a row is a multiple of 128 bytes, else one vector apart.
template <int Rows, int Columns>
struct ChunkTile {
  static constexpr bool is_exchanged = Columns % 64 == 0;
  static constexpr int stride = is_exchanged ? Columns : Columns + 8;
  static constexpr int columns = Columns;

  SharedArray<bf16, Rows * stride> values;

  __device__ __forceinline__ int place(int row, int column) const {
    return row * stride + (is_exchanged ? column ^ (row & 7) << 3 : column);
  }
  __device__ __forceinline__ bf16* at(int row, int column) { return &values[place(row, column)]; }
  __device__ __forceinline__ const bf16* at(int row, int column) const {
    return &values[place(row, column)];
  }
};

/// Copies at most a chunk of tokens, of which `from` is the first; zeros past them. Not unrolled
/// further: addresses kept from chunk to chunk would take the products' registers.
template <int Columns>
__device__ __forceinline__ void copy_chunk(ChunkTile<chunk_tokens, Columns>& to, const bf16* from,
                                           int stride, int tokens) {
  constexpr int vectors = Columns / 8, copies = chunk_tokens * vectors / chunk_threads;
  static_assert(copies * chunk_threads == chunk_tokens * vectors);
#pragma unroll 2
  for (int n = 0; n < copies; ++n) {
    const int i = n * chunk_threads + static_cast<int>(threadIdx.x);
    const int token = i / vectors, column = i % vectors * 8;
    const bool is_there = token < tokens;
    cp_async16(to.at(token, column), from + (is_there ? token * stride + column : 0), is_there);
  }
}

/// exp of a difference of sums, which rounding may lift above zero; NaN stays NaN.
__device__ __forceinline__ float exp_not_above_one(float value) {
  return exp_fast(value > 0.0F ? 0.0F : value);
}

/// A token's own logarithm counts as at least this: exp of it is zero compared with any f32 that
/// was one before, and sums over a chunk keep their bits.
inline constexpr float log_decay_min = -100.0F;

}  // namespace hyb::kernels::cuda
