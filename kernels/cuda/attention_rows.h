#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/semaphore.h"
#include "kernels/cuda/vectors.h"
#include "kernels/floats.h"

namespace hyb::kernels::cuda {

/// Queries, or a tile's keys or values: 16 bytes at a time permuted within a row, so that the 8
/// rows of a matrix lie in different banks.
template <int HeadDim, int Rows>
struct RowTile {
  SharedArray<SharedArray<bf16, HeadDim>, Rows> rows;

  __device__ __forceinline__ bf16* at(int row, int eight) {
    return &rows[row][(eight ^ (row & 7)) * 8];
  }
};

template <typename S>
using KeyTile = RowTile<S::head_dim, tile_keys>;

/// The last tiles of keys and values, on their way or there: item 2t is the keys of a block's tile
/// t, item 2t + 1 its values. They come in pieces of 16 bytes.
template <typename S>
struct PlainRing {
  static constexpr int pieces = S::head_dim / 8;  ///< of a key
  SharedArray<KeyTile<S>, S::stages> tiles;

  __device__ __forceinline__ void* at(int item, int key, int piece) {
    return tiles[item % S::stages].at(key, piece);
  }
  /// The thread's own pieces of an item have arrived; after the block's next barrier all have.
  __device__ __forceinline__ void arrive(int) {}
  __device__ __forceinline__ KeyTile<S>& tile(int item) { return tiles[item % S::stages]; }
};

/// The same of codes: a thread widens the pieces that it has copied itself. With one tile to
/// widen to, no thread may still read an item when another one arrives; with two, the one before.
template <typename S>
struct CodedRing {
  static constexpr int pieces = S::head_dim / 16;
  SharedArray<KeyTile<S>, S::wide_tiles> tiles;
  SharedArray<SharedArray<SharedArray<e4m3, S::head_dim>, tile_keys>, S::stages> codes;

  __device__ __forceinline__ void* at(int item, int key, int piece) {
    return &codes[item % S::stages][key][piece * 16];
  }
  __device__ __forceinline__ void arrive(int item) {
    KeyTile<S>& to = tile(item);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < tile_keys * pieces; i += S::threads) {
      const int key = i / pieces, piece = i % pieces;
      uint4 halves[2];
      widen(load16(at(item, key, piece)), halves[0], halves[1]);
      store16(to.at(key, 2 * piece), halves[0]);
      store16(to.at(key, 2 * piece + 1), halves[1]);
    }
  }
  /// Addresses within it are computed again for every item: there are no registers to hold them.
  __device__ __forceinline__ KeyTile<S>& tile(int item) {
    return tiles[hidden(item % S::wide_tiles)];
  }
};

template <typename S>
using KeyRing = std::conditional_t<S::is_coded, CodedRing<S>, PlainRing<S>>;

/// A block of RowWarps x ColumnWarps warps that owns 16 rows per row warp. Column warps share the
/// keys of a tile when scores are made, and the dimensions when values are added. Keys and values
/// of type K go through a ring of Stages tiles. Heads of fewer dimensions are filled up with zeros.
/// A softcap is part of the shape: its instructions would cost every model a tenth of the loop.
template <int HeadDim, int RowWarps, int ColumnWarps, int Stages, typename K, bool IsCapped>
struct AttentionShape {
  using Kv = K;
  static constexpr bool is_capped = IsCapped;
  static constexpr bool is_coded = std::is_same_v<K, e4m3>;
  /// Codes are widened to this many tiles of bf16. Two of 256 dimensions are more than a block has
  /// room for.
  static constexpr int wide_tiles = HeadDim <= 128 ? 2 : 1;
  static constexpr int head_dim = HeadDim, column_warps = ColumnWarps, stages = Stages;
  static constexpr int rows = RowWarps * 16;
  static constexpr int threads = RowWarps * ColumnWarps * warp_size;
  static constexpr int scores = tile_keys / 8 / ColumnWarps;  ///< columns of a warp, in eights
  static constexpr int sums = HeadDim / 8 / ColumnWarps;
  static constexpr int value_dim = HeadDim;
  /// Addresses of copies are computed again for every item: there are no registers to hold them.
  static constexpr bool forgets_addresses = HeadDim == 256 && sums >= 16;
};

/// For the rows of few tokens.
template <int HeadDim, typename K, bool IsCapped>
using NarrowShape = AttentionShape < HeadDim,
      1, 4,
      HeadDim<256              ? 4
              : sizeof(K) == 1 ? 3
                               : 2,
              K, IsCapped>;

/// The tiles of keys that one block walks: those of runs first_run + part, + parts, ...
struct KeyWalk {
  int part, parts;
  int begin, end;  ///< keys that some row of the block attends to
  int whole;       ///< from here on no row's window has passed by
  int first_run, runs;
  int tiles;  ///< of the block

  static constexpr int tiles_of_run = attention_run / tile_keys;

  /// Walks all keys begin_key .. end_key - 1; share() cuts it into parts.
  __device__ KeyWalk(int begin_key, int whole_key, int end_key)
      : part(0),
        parts(1),
        begin(begin_key),
        end(end_key),
        whole(whole_key),
        first_run(begin_key / attention_run),
        runs((end_key + attention_run - 1) / attention_run - first_run),
        tiles(0) {
    share(0, 1);
  }
  __device__ void share(int of_part, int of_parts) {
    part = of_part;
    parts = of_parts;
    const int own = (runs - part + parts - 1) / parts;
    const int last = first_run + part + (own - 1) * parts;
    const int steps = (end - last * attention_run + tile_keys - 1) / tile_keys;
    tiles = (own - 1) * tiles_of_run + (steps < tiles_of_run ? steps : tiles_of_run);
  }
  __device__ int run_of(int tile) const { return first_run + part + tile / tiles_of_run * parts; }
  __device__ int key_of(int tile) const {
    return run_of(tile) * attention_run + tile % tiles_of_run * tile_keys;
  }
};

inline constexpr int places_kept = 4;  ///< tiles whose places are in shared memory

template <typename S>
struct AttentionShared {
  alignas(128) KeyRing<S> ring;
  RowTile<S::head_dim, S::rows> queries;
  /// Weights of column warps that others need; rows are padded, so that they lie in other banks.
  alignas(16)
      SharedArray<SharedArray<bf16, tile_keys + 8>, S::column_warps == 1 ? 1 : S::rows> weights;
  SharedArray<SharedArray<float, S::column_warps>, S::rows> largest;
  SharedArray<std::int64_t, places_kept * tile_keys> places;
  TileSearch search;
  SharedArray<RowReach, S::rows> reach;
  SharedArray<KeyWalk, 1> walk;
  SharedArray<int, 1> is_last;
};

/// Returns where a key of one kv head starts in the arena. 0 for keys that no row attends to: their
/// pages may be gone.
template <typename Params>
__device__ __forceinline__ std::int64_t place_of_key(const Params& p, const AttentionTile& tile,
                                                     int kv_head, int key, const KeyWalk& walk) {
  if (key < walk.begin || key >= walk.end) return 0;
  return p.kv.page_of(tile.page_begin, key) + p.key(kv_head, key % p.kv.layout.page_tokens);
}

/// Copies the queries of a tile of rows, asynchronously, zeros where there is no row.
template <typename S, typename Params>
__device__ __forceinline__ void copy_queries(const Params& p, const AttentionTile& tile,
                                             int kv_head, AttentionShared<S>& shared) {
  constexpr int eights = S::head_dim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < S::rows * eights; i += S::threads) {
    const int row = i / eights, eight = i % eights;
    const bool is_there = row < tile.rows;
    const bf16* const from =
        p.q + p.offset_of(tile.token, kv_head, tile.first_row + (is_there ? row : 0), p.q_stride);
    cp_async16(shared.queries.at(row, eight), from + eight * 8,
               is_there && eight * 8 < p.kv.layout.head_dim);
  }
}

/// Copies item `item` of a walk asynchronously: the keys of tile item / 2, or its values. Keys that
/// no row attends to, and the last `own_keys` of the walk, are zeros, whatever memory holds.
template <typename S, typename Params>
__device__ __forceinline__ void copy_item(const Params& p, const KeyWalk& walk, int item,
                                          int own_keys, AttentionShared<S>& shared) {
  constexpr int pieces = KeyRing<S>::pieces, size = S::head_dim / pieces;
  const int tile = item / 2;
  if (tile < walk.tiles) {
    const int skipped = walk.begin - walk.key_of(tile),
              left = walk.end - own_keys - walk.key_of(tile);
    const auto* const from = p.kv.arena + (item % 2 == 0 ? 0 : p.kv.layout.value_offset());
    auto thread = static_cast<int>(threadIdx.x);
    if constexpr (S::forgets_addresses) thread = hidden(thread);
#pragma unroll
    for (int i = thread; i < tile_keys * pieces; i += S::threads) {
      const int key = i / pieces, piece = i % pieces;
      const std::int64_t place = shared.places[tile % places_kept * tile_keys + key];
      cp_async16(shared.ring.at(item, key, piece), from + place + piece * size,
                 key >= skipped && key < left && piece * size < p.kv.layout.head_dim);
    }
  }
  cp_async_commit();
}

/// Holds what a warp knows of its 16 rows after some keys: lane l has rows l/4 and l/4 + 8 (i of 0
/// and 1 where it says row i), and of every eight columns those that an mma gives it.
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
  // All at once, but for rows of latents, whose addresses would take too many registers.
#pragma unroll(S::head_dim > 256 ? 4 : S::head_dim / 16)
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

/// The softcap of a tile's scores, where there is one.
template <typename S, typename Params>
__device__ __forceinline__ void cap_scores(const Params& p, float (&scores)[S::scores][4]) {
  if constexpr (S::is_capped) {
#pragma unroll
    for (auto& eight : scores) {
#pragma unroll
      for (float& score : eight) score = p.capped(score);
    }
  }
}

/// Takes out the scores of keys that a row does not see; `key` is the tile's first of the warp.
template <typename S>
__device__ __forceinline__ void mask_scores(const AttentionShared<S>& shared, int warp_row, int key,
                                            float (&scores)[S::scores][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const RowReach reach = shared.reach[warp_row + lane / 4 + i * 8];
    const int own = key + lane % 4 * 2, first = reach.first - own, last = reach.last - own;
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

/// Scores to weights, in pairs of bf16 as the product with the values takes them; sums shrink where
/// the maximum grew.
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

/// Returns what blocks that share a tile's runs leave for the one that merges them, for each row
/// and run: sums [head_dim], the sum of weights, the largest score, two floats of padding.
constexpr std::int64_t partial_floats(std::int64_t head_dim) { return head_dim + 4; }

/// Before the partials: a tile's semaphore counts the blocks that are done with it. Zero between
/// launches. Tiles without a semaphore are not shared.
inline constexpr std::int64_t semaphores_max = 8192;

/// Row `row` of a tile after run `run`.
template <int HeadDim, typename Params>
__device__ __forceinline__ float* partial_of(const Params& p, const AttentionTile& tile,
                                             int kv_head, int run, int row) {
  const std::int64_t before = tile.partial * p.kv_heads;
  const std::int64_t runs_before = static_cast<std::int64_t>(kv_head) * tile.span_runs + run;
  return p.partials +
         (before + runs_before * tile.span_rows + tile.first_row + row) * partial_floats(HeadDim);
}

template <typename S, typename Params>
__device__ __forceinline__ void write_partials(const Params& p, const AttentionTile& tile,
                                               int kv_head, int run, const RowSums<S>& part) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp_row = warp / S::column_warps * 16, column_warp = warp % S::column_warps;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp_row + lane / 4 + i * 8;
    if (row >= tile.rows) continue;
    float* const to = partial_of<S::value_dim>(p, tile, kv_head, run, row);
#pragma unroll
    for (int n = 0; n < S::sums; ++n) {
      const uint2 pair = {std::bit_cast<unsigned>(part.sums[n][2 * i]),
                          std::bit_cast<unsigned>(part.sums[n][2 * i + 1])};
      store8(to + (column_warp * S::sums + n) * 8 + lane % 4 * 2, pair);
    }
    if (column_warp == 0 && lane % 4 == 0) {
      to[S::value_dim] = part.weights[2 * i];
      to[S::value_dim + 1] = part.largest[i];
    }
  }
}

/// Merges all runs of a tile, in ascending order as merge() does, to y: thread `thread` of
/// `threads` that share the tile. A thread owns four neighbouring dimensions of a row.
template <int HeadDim, int RunsInFlight, typename Params>
__device__ __forceinline__ void merge_partials(const Params& p, const AttentionTile& tile,
                                               int kv_head, const KeyWalk& walk, int thread,
                                               int threads) {
  constexpr int fours = HeadDim / 4;
  for (int i = thread; i < tile.rows * fours; i += threads) {
    const int row = i / fours, column = i % fours * 4;
    float sums[4] = {}, weights = 0.0F, largest = no_score;
    const float* partial = partial_of<HeadDim>(p, tile, kv_head, walk.first_run, row);
#pragma unroll RunsInFlight
    for (int run = 0; run < walk.runs; ++run) {
      float part[4];
      unpack(load16(partial + column), part);
      const float part_weights = partial[HeadDim], part_largest = partial[HeadDim + 1];
      const float next = fmaxf(largest, part_largest);
      const float keep = shrink_of(largest, next, p.scale);
      const float add = shrink_of(part_largest, next, p.scale);
      for (int j = 0; j < 4; ++j) sums[j] = merged(sums[j], keep, part[j], add);
      weights = merged(weights, keep, part_weights, add);
      largest = next;
      partial += tile.span_rows * partial_floats(HeadDim);
    }
    const float* const sink = p.sink_of(kv_head, tile.first_row + row);
    const float scale = 1.0F / weights_with_sink(weights, largest, p.scale, sink);
    if (column >= p.kv.layout.head_dim) continue;
    bf16* const y =
        p.y + p.offset_of(tile.token, kv_head, tile.first_row + row, p.y_stride) + column;
    const RowGate<bf16> gate = p.gate_of(tile.token, kv_head, tile.first_row + row);
    store8(y, {gated_pair(sums[0] * scale, sums[1] * scale, gate, column),
               gated_pair(sums[2] * scale, sums[3] * scale, gate, column + 2)});
  }
}

}  // namespace hyb::kernels::cuda
