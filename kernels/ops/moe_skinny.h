#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.h"

/// Products of a bf16 weight with up to 16 rows of x, for a weight that is read once: its 16-byte
/// pieces go from memory to registers and into the matrix instruction as they are. Included by .cu
/// files only.
///
/// A warp owns `Groups` times 8 rows of the weight, which are the 8 columns of the instruction; the
/// rows of x are its 16 rows. Lane l holds row l/4 of a group, and rows l/4 and l/4+8 of x: always
/// elements 8*(l%4) .. 8*(l%4)+7 of 32, which both sides give to the instruction in one order of
/// our own. k goes in chunks of 64, so that a row's 128 bytes are asked for together.
namespace hyb::kernels::cuda {

inline constexpr int skinny_rows_max = 16;  ///< of x
inline constexpr int skinny_group = 8;      ///< rows of the weight
inline constexpr int skinny_chunk = 64;

inline constexpr int skinny_chunks(int inner) { return (inner + skinny_chunk - 1) / skinny_chunk; }

/// The weight's pieces of `Chunks` chunks on their way to the registers.
template <int Groups, int Chunks>
struct SkinnyPieces {
  uint4 values[Chunks][2][Groups];
};

/// Chunks first, first+step, ... of a sum over k. inner is a multiple of 8.
struct SkinnyRange {
  int inner, first, step;

  /// Where this lane's piece of chunk i begins; not below inner: there is none.
  __device__ int k(int i, int half) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    return (first + i * step) * skinny_chunk + half * 32 + lane % 4 * 8;
  }
};

/// Piece (i, half) of the rows, this lane's of every group.
template <int Groups, int Chunks>
__device__ __forceinline__ void load_piece(SkinnyPieces<Groups, Chunks>& to, int i, int half,
                                           const bf16* const (&rows)[Groups],
                                           const SkinnyRange& range) {
  const int k = range.k(i, half);
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    to.values[i][half][g] = k < range.inner ? load16_once(rows[g] + k) : uint4{};
  }
}

template <int Groups, int Chunks>
__device__ __forceinline__ void load_pieces(SkinnyPieces<Groups, Chunks>& to,
                                            const bf16* const (&rows)[Groups],
                                            const SkinnyRange& range) {
#pragma unroll
  for (int i = 0; i < 2 * Chunks; ++i) load_piece(to, i / 2, i % 2, rows, range);
}

/// x(first, k): the 16 bytes at k of row l/4 + first, which is 0 or 8; zeros where the row ends or
/// is none. Without `is_high` rows from 8 on are not there. sums[g]: rows l/4 (0,1) and l/4+8 (2,3)
/// of x with weight rows 2*(l%4) and 2*(l%4)+1 of group g. Every piece that is used makes room for
/// one of `next_rows`.
template <int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_pieces(SkinnyPieces<Groups, Chunks>& pieces,
                                                const SkinnyRange& range, bool is_high, X&& x,
                                                float (&sums)[Groups][4],
                                                const bf16* const (&next_rows)[Groups],
                                                const SkinnyRange& next) {
#pragma unroll
  for (int i = 0; i < 2 * Chunks; ++i) {
    const int k = range.k(i / 2, i % 2);
    const uint4 low = x(0, k), high = is_high ? x(skinny_rows_max / 2, k) : uint4{};
    const std::uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const std::uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      const uint4 weight = pieces.values[i / 2][i % 2][g];
      mma_bf16(sums[g], first, weight.x, weight.y);
      mma_bf16(sums[g], second, weight.z, weight.w);
    }
    load_piece(pieces, i / 2, i % 2, next_rows, next);
  }
}

/// All chunks of `range`, of which the first stand in `pieces`.
template <int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_rows(SkinnyPieces<Groups, Chunks>& pieces,
                                              const bf16* const (&rows)[Groups], SkinnyRange range,
                                              bool is_high, X&& x, float (&sums)[Groups][4]) {
#pragma unroll 1
  while (range.first * skinny_chunk < range.inner) {
    SkinnyRange next = range;
    next.first += Chunks * range.step;
    multiply_pieces(pieces, range, is_high, x, sums, rows, next);
    range = next;
  }
}

/// Adds up what the warps of a block have, in their order. 16 rows of x, Groups * 8 of the weight.
template <int Groups, int Warps>
struct SkinnyTotals {
  static constexpr int columns = Groups * skinny_group;
  static constexpr int stride = columns + 1;
  SharedArray<float, Warps * skinny_rows_max * stride> values;

  __device__ void put(bool is_high, const float (&sums)[Groups][4]) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= 2 && !is_high) continue;
      const int row = lane / 4 + i / 2 * 8;
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const int column = g * skinny_group + lane % 4 * 2 + i % 2;
        values[(warp * skinny_rows_max + row) * stride + column] = sums[g][i];
      }
    }
  }

  /// After a barrier.
  __device__ float sum(int row, int column) const {
    float total = 0.0F;
    for (int warp = 0; warp < Warps; ++warp) {
      total += values[(warp * skinny_rows_max + row) * stride + column];
    }
    return total;
  }
};

}  // namespace hyb::kernels::cuda
