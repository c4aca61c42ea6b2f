#pragma once

#include <bit>
#include <cstdint>

#include "kernels/ops/moe_skinny.h"

/// Products of an f32 weight with rows of bf16 by the matrix instructions of bf16: a number of 24
/// bits is the sum of three of 8, and each of their products is exact. Included by .cu files only.
namespace hyb::kernels::cuda {

/// The rounded pair, of which what was lost stays in `low` and `high`.
__device__ __forceinline__ std::uint32_t take_bf16(float& low, float& high) {
  const std::uint32_t pair = pack_bf16(low, high);
  low -= std::bit_cast<float>(pair << 16);
  high -= std::bit_cast<float>(pair & 0xffff0000U);
  return pair;
}

/// Eight numbers as three times eight of bf16, the largest first. An infinity becomes NaN.
struct SplitPiece {
  std::uint32_t parts[3][4];

  __device__ SplitPiece(uint4 low, uint4 high) {
    const unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float first = std::bit_cast<float>(words[2 * i]);
      float second = std::bit_cast<float>(words[2 * i + 1]);
#pragma unroll
      for (int part = 0; part < 3; ++part) parts[part][i] = take_bf16(first, second);
    }
  }
};

/// A chunk of two groups of rows on its way to the registers: of each half the low and the high
/// four numbers.
using SplitPieces = SkinnyPieces<2, 2>;

__device__ __forceinline__ void load_piece(SplitPieces& to, int half, const float* const (&rows)[2],
                                           const SkinnyRange& range) {
  const int k = range.k(0, half);
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const bool is_there = k < range.inner;
    to.values[half][0][g] = is_there ? load16_once(rows[g] + k) : uint4{};
    to.values[half][1][g] = is_there ? load16_once(rows[g] + k + 4) : uint4{};
  }
}

__device__ __forceinline__ void load_pieces(SplitPieces& to, const float* const (&rows)[2],
                                            const SkinnyRange& range) {
  load_piece(to, 0, rows, range);
  load_piece(to, 1, rows, range);
}

/// As multiply_rows of moe_skinny.h, for `Tiles` times 16 rows of x: x(row, k) has the 16 bytes at
/// k of row l/4 + row, which is 0 or 8 of a tile's 16; without `is_high` the latter are not there.
template <int Tiles, typename X>
__device__ __forceinline__ void multiply_rows(SplitPieces& pieces, const float* const (&rows)[2],
                                              SkinnyRange range, bool is_high, X&& x,
                                              float (&sums)[Tiles][2][4]) {
#pragma unroll 1
  while (range.first * skinny_chunk < range.inner) {
    SkinnyRange next = range;
    next.first += range.step;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = range.k(0, half);
      uint4 low[Tiles], high[Tiles];
#pragma unroll
      for (int m = 0; m < Tiles; ++m) {
        low[m] = x(m * skinny_rows_max, k);
        high[m] = is_high ? x(m * skinny_rows_max + skinny_rows_max / 2, k) : uint4{};
      }
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const SplitPiece weight(pieces.values[half][0][g], pieces.values[half][1][g]);
#pragma unroll
        for (const auto& part : weight.parts) {
#pragma unroll
          for (int m = 0; m < Tiles; ++m) {
            mma_bf16(sums[m][g], {low[m].x, high[m].x, low[m].y, high[m].y}, part[0], part[1]);
            mma_bf16(sums[m][g], {low[m].z, high[m].z, low[m].w, high[m].w}, part[2], part[3]);
          }
        }
      }
      load_piece(pieces, half, rows, next);
    }
    range = next;
  }
}

template <typename X>
__device__ __forceinline__ void multiply_rows(SplitPieces& pieces, const float* const (&rows)[2],
                                              const SkinnyRange& range, bool is_high, X&& x,
                                              float (&sums)[2][4]) {
  float tile[1][2][4] = {};
  multiply_rows(pieces, rows, range, is_high, x, tile);
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = tile[0][i / 4][i % 4];
}

}  // namespace hyb::kernels::cuda
