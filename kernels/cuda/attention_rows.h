#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_keys.h"
#include "kernels/cuda/attention_merge.h"

namespace hyb::kernels::cuda {

/// What a warp knows of its 16 rows after some keys: lane l has rows l/4 and l/4 + 8 (i of 0 and 1
/// where it says row i), and of every eight columns those that an mma gives it.
template <typename S>
struct RowSums {
  float sums[S::sums][4];
  float weights[4];  ///< their sum, from a product with ones: elements 0 and 2
  float largest[2];  ///< score, not scaled

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& eight : sums) {
      for (float& sum : eight) sum = 0.0F;
    }
    for (float& sum : weights) sum = 0.0F;
    largest[0] = largest[1] = no_score;
  }
};

/// Scores of the warp's rows with its keys of a tile.
template <typename S>
__device__ __forceinline__ void score_keys(AttentionShared<S>& shared, KeyTile<S>& keys,
                                           int warp_row, int first_key,
                                           float (&scores)[S::scores][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (auto& eight : scores) {
    for (float& score : eight) score = 0.0F;
  }
#pragma unroll
  for (int k = 0; k < S::head_dim / 16; ++k) {
    std::uint32_t q[4];
    ldmatrix_x4(q, shared.queries.at(warp_row + lane % 16, k * 2 + lane / 16));
#pragma unroll
    for (int n = 0; n < S::scores; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, keys.at(first_key + n * 8 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
      mma_bf16(scores[n], q, b[0], b[1]);
      mma_bf16(scores[n + 1], q, b[2], b[3]);
    }
  }
}

/// Takes out the scores of keys that a row does not see; `key` is the tile's first of the warp.
template <typename S, typename Params>
__device__ __forceinline__ void mask_scores(const Params& p, const AttentionShared<S>& shared,
                                            int warp_row, int key, float (&scores)[S::scores][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int position = shared.position[warp_row + lane / 4 + i * 8], own = key + lane % 4 * 2;
    const int first = p.first_key(position) - own, last = position - own;
#pragma unroll
    for (int n = 0; n < S::scores; ++n) {
      if (n * 8 < first || n * 8 > last) scores[n][2 * i] = no_score;
      if (n * 8 + 1 < first || n * 8 + 1 > last) scores[n][2 * i + 1] = no_score;
    }
  }
}

/// The largest score of each of the lane's rows, over all column warps.
template <typename S>
__device__ __forceinline__ void find_largest(const float (&scores)[S::scores][4], int warp_row,
                                             int column_warp, AttentionShared<S>& shared,
                                             float (&largest)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float own = no_score;
#pragma unroll
    for (int n = 0; n < S::scores; ++n) {
      own = fmaxf(own, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
    }
    own = fmaxf(own, shuffle_xor(own, 1));
    largest[i] = fmaxf(own, shuffle_xor(own, 2));
  }
  if constexpr (S::column_warps > 1) {
    for (int i = 0; i < 2; ++i) {
      if (lane % 4 == 0) shared.largest[warp_row + lane / 4 + i * 8][column_warp] = largest[i];
    }
    sync_block();
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < S::column_warps; ++j) {
        largest[i] = fmaxf(largest[i], shared.largest[warp_row + lane / 4 + i * 8][j]);
      }
    }
  }
}

/// Scores to weights, in pairs of bf16 as they meet the values; sums shrink where the maximum grew.
template <typename S>
__device__ __forceinline__ void weigh(float (&scores)[S::scores][4], const float (&found)[2],
                                      float scale, RowSums<S>& rows,
                                      std::uint32_t (&pairs)[S::scores][2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float largest = fmaxf(rows.largest[i], found[i]);
    const float shrink = shrink_of(rows.largest[i], largest, scale);
    const float offset = subtrahend(largest) * scale;
    rows.largest[i] = largest;
    rows.weights[2 * i] *= shrink;
#pragma unroll
    for (auto& eight : rows.sums) {
      eight[2 * i] *= shrink;
      eight[2 * i + 1] *= shrink;
    }
#pragma unroll
    for (int n = 0; n < S::scores; ++n) {
      pairs[n][i] = pack_bf16(exp2_fast(fmaf(scores[n][2 * i], scale, -offset)),
                              exp2_fast(fmaf(scores[n][2 * i + 1], scale, -offset)));
    }
  }
}

/// Adds weights * values of one tile, 16 keys after the other.
template <typename S>
__device__ __forceinline__ void add_values(const std::uint32_t (&weights)[tile_keys / 16][4],
                                           KeyTile<S>& values, int column_warp, RowSums<S>& rows) {
  constexpr std::uint32_t ones = 0x3f803f80;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < tile_keys / 16; ++k) {
    mma_bf16(rows.weights, weights[k], ones, ones);
#pragma unroll
    for (int n = 0; n < S::sums; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_transposed(b,
                             values.at(k * 16 + lane % 16, column_warp * S::sums + n + lane / 16));
      mma_bf16(rows.sums[n], weights[k], b[0], b[1]);
      mma_bf16(rows.sums[n + 1], weights[k], b[2], b[3]);
    }
  }
}

/// total <- total and then part. With an empty total: part; with an empty part: total.
template <typename S>
__device__ __forceinline__ void merge(RowSums<S>& total, const RowSums<S>& part, float scale) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float largest = fmaxf(total.largest[i], part.largest[i]);
    const float keep = shrink_of(total.largest[i], largest, scale);
    const float add = shrink_of(part.largest[i], largest, scale);
    total.largest[i] = largest;
    total.weights[2 * i] = merged(total.weights[2 * i], keep, part.weights[2 * i], add);
#pragma unroll
    for (int n = 0; n < S::sums; ++n) {
#pragma unroll
      for (int j = 2 * i; j < 2 * i + 2; ++j) {
        total.sums[n][j] = merged(total.sums[n][j], keep, part.sums[n][j], add);
      }
    }
  }
}

}  // namespace hyb::kernels::cuda
