#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/attention_gate.h"
#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/vectors.h"

namespace hyb::kernels::cuda {

/// What blocks that share a tile's runs leave for the one that merges them, for each row and run:
/// sums [head_dim], the sum of weights, the largest score, two floats of padding.
constexpr std::int64_t record_floats(std::int64_t head_dim) { return head_dim + 4; }

/// In front of the records: a tile's ticket counts the blocks that are done with it. Zero between
/// launches. Tiles without a ticket are not shared.
inline constexpr std::int64_t tickets_max = 8192;

/// Row `row` of a tile after run `run`.
template <int HeadDim, typename Params>
__device__ __forceinline__ float* record_of(const Params& p, const AttentionTile& tile, int kv_head,
                                            int run, int row) {
  const std::int64_t before = tile.record * p.kv_heads;
  const std::int64_t runs_before = static_cast<std::int64_t>(kv_head) * tile.span_runs + run;
  return p.records +
         (before + runs_before * tile.span_rows + tile.first_row + row) * record_floats(HeadDim);
}

template <typename S, typename Params>
__device__ __forceinline__ void write_records(const Params& p, const AttentionTile& tile,
                                              int kv_head, int run, const RowSums<S>& part) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp_row = warp / S::column_warps * 16, column_warp = warp % S::column_warps;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp_row + lane / 4 + i * 8;
    if (row >= tile.rows) continue;
    float* const to = record_of<S::head_dim>(p, tile, kv_head, run, row);
#pragma unroll
    for (int n = 0; n < S::sums; ++n) {
      const uint2 pair = {std::bit_cast<unsigned>(part.sums[n][2 * i]),
                          std::bit_cast<unsigned>(part.sums[n][2 * i + 1])};
      store8(to + (column_warp * S::sums + n) * 8 + lane % 4 * 2, pair);
    }
    if (column_warp == 0 && lane % 4 == 0) {
      to[S::head_dim] = part.weights[2 * i];
      to[S::head_dim + 1] = part.largest[i];
    }
  }
}

/// True in all threads of the last of `parts` blocks to come here with a ticket; the records of the
/// others are seen then.
__device__ __forceinline__ bool is_last_of(int parts, unsigned* ticket, SharedArray<int, 1>& vote) {
  sync_block();
  if (threadIdx.x == 0) {
    fence();
    const bool is_last = atomic_add(ticket, 1U) + 1 == static_cast<unsigned>(parts);
    if (is_last) *ticket = 0;
    vote[0] = is_last ? 1 : 0;
    fence();
  }
  sync_block();
  return vote[0] != 0;
}

/// Merges all runs of a tile, in ascending order as merge() does, to y. A thread owns four
/// neighbouring dimensions of a row.
template <typename S, typename Params>
__device__ __forceinline__ void merge_records(const Params& p, const AttentionTile& tile,
                                              int kv_head, const KeyWalk& walk) {
  constexpr int fours = S::head_dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows * fours; i += S::threads) {
    const int row = i / fours, column = i % fours * 4;
    float sums[4] = {}, weights = 0.0F, largest = no_score;
    const float* record = record_of<S::head_dim>(p, tile, kv_head, walk.first_run, row);
#pragma unroll 4
    for (int run = 0; run < walk.runs; ++run) {
      float part[4];
      unpack(load16(record + column), part);
      const float part_weights = record[S::head_dim], part_largest = record[S::head_dim + 1];
      const float next = fmaxf(largest, part_largest);
      const float keep = shrink_of(largest, next, p.scale);
      const float add = shrink_of(part_largest, next, p.scale);
      for (int j = 0; j < 4; ++j) sums[j] = merged(sums[j], keep, part[j], add);
      weights = merged(weights, keep, part_weights, add);
      largest = next;
      record += tile.span_rows * record_floats(S::head_dim);
    }
    const float* const sink = p.sink_of(kv_head, tile.first_row + row);
    const float scale = 1.0F / weights_with_sink(weights, largest, p.scale, sink);
    if (column >= p.layout.head_dim) continue;
    bf16* const y =
        p.y + p.offset_of(tile.token, kv_head, tile.first_row + row, p.y_stride) + column;
    const bf16* gate = p.gate_of(tile.token, kv_head, tile.first_row + row);
    if (gate != nullptr) gate += column;
    store8(y, {gated_pair(sums[0] * scale, sums[1] * scale, gate),
               gated_pair(sums[2] * scale, sums[3] * scale, gate == nullptr ? nullptr : gate + 2)});
  }
}

}  // namespace hyb::kernels::cuda
