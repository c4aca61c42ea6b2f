#pragma once

#include <cstdint>

#include "kernels/cuda/attention_ring.h"

namespace hyb::kernels::cuda {

/// A block of RowWarps x ColumnWarps warps that owns 16 rows per row warp. Column warps share the
/// keys of a tile when scores are made, and the dimensions when values are added. Keys and values
/// of type K go through a ring of Stages tiles. Heads of fewer dimensions are filled up with zeros.
template <int HeadDim, int RowWarps, int ColumnWarps, int Stages, typename K>
struct AttentionShape {
  using Kv = K;
  static constexpr bool is_coded = std::is_same_v<K, e4m3>;
  /// Of bf16 that codes are widened to. Two of 256 dimensions are more than a block has room for.
  static constexpr int wide_tiles = HeadDim <= 128 ? 2 : 1;
  static constexpr int head_dim = HeadDim, column_warps = ColumnWarps, stages = Stages;
  static constexpr int rows = RowWarps * 16;
  static constexpr int threads = RowWarps * ColumnWarps * warp_size;
  static constexpr int scores = tile_keys / 8 / ColumnWarps;  ///< columns of a warp, in eights
  static constexpr int sums = HeadDim / 8 / ColumnWarps;
};

/// For the rows of few tokens.
template <int HeadDim, typename K>
using NarrowShape = AttentionShape < HeadDim,
      1, 4,
      HeadDim<256              ? 4
              : sizeof(K) == 1 ? 3
                               : 2,
              K>;

/// The tiles of keys that one block walks: those of runs first_run + part, + parts, ...
struct KeyWalk {
  int part, parts;
  int begin, end;  ///< keys that some row of the block sees
  int whole;       ///< from here on no row's window has passed by
  int first_run, runs;
  int tiles;  ///< of the block

  static constexpr int tiles_of_run = attention_run / tile_keys;

  /// Of all keys begin_key .. end_key - 1; share() cuts it into parts.
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
  SharedArray<int, S::rows> position;  ///< of each row
  SharedArray<KeyWalk, 1> walk;
  SharedArray<int, 1> is_last;
};

/// Where a key of one kv head begins in the arena. 0 for keys that no row sees: their pages may be
/// gone.
template <typename Params>
__device__ __forceinline__ std::int64_t place_of_key(const Params& p, const AttentionTile& tile,
                                                     int kv_head, int key, const KeyWalk& walk) {
  if (key < walk.begin || key >= walk.end) return 0;
  const std::int64_t page = p.pages[tile.page_begin + key / p.layout.page_tokens];
  return page * p.page_stride + p.layout.key(kv_head, key % p.layout.page_tokens);
}

/// Asks for the queries of a tile of rows, zeros where there is no row.
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
               is_there && eight * 8 < p.layout.head_dim);
  }
}

/// Asks for item `item` of a walk: the keys of tile item / 2, or its values. Keys that no row
/// sees, and the last `own_keys` of the walk, are zeros, whatever stands in memory.
template <typename S, typename Params>
__device__ __forceinline__ void copy_item(const Params& p, const KeyWalk& walk, int item,
                                          int own_keys, AttentionShared<S>& shared) {
  constexpr int pieces = KeyRing<S>::pieces, size = S::head_dim / pieces;
  const int tile = item / 2;
  if (tile < walk.tiles) {
    const int skipped = walk.begin - walk.key_of(tile),
              left = walk.end - own_keys - walk.key_of(tile);
    const auto* const from = p.arena + (item % 2 == 0 ? 0 : p.layout.value_offset());
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < tile_keys * pieces; i += S::threads) {
      const int key = i / pieces, piece = i % pieces;
      const std::int64_t place = shared.places[tile % places_kept * tile_keys + key];
      cp_async16(shared.ring.at(item, key, piece), from + place + piece * size,
                 key >= skipped && key < left && piece * size < p.layout.head_dim);
    }
  }
  cp_async_commit();
}

}  // namespace hyb::kernels::cuda
