#pragma once

#include <cstdint>

#include "kernels/cuda/kv_page.h"
#include "kernels/cuda/ptx.h"

namespace hyb::kernels::cuda {

/// Keys are taken in tiles of tile_keys, tiles in runs of attention_run, both counted from
/// position 0. Within a run scores meet a running maximum; runs are merged in ascending order.
/// Every route and tile size does the same sums in the same order, so a row's answer does not
/// depend on how a sequence is cut, on who shares the runs, or on the other rows.
inline constexpr int tile_keys = 64;
inline constexpr int attention_run = 256;

/// What all routes read. Row r of a span and kv head is query head r % group of token r / group.
template <typename T, typename K>
struct AttentionParams {
  const T* q;
  const K* arena;
  T* y;
  const std::int32_t *span_begin, *position, *page_begin, *pages;
  std::int64_t q_stride, y_stride, page_stride;
  KvPage layout;
  int spans, kv_heads, group;
  const float* sinks;  ///< of each head; null: none
  int window;          ///< a row sees its last so many positions; beyond all of them: no window
  float scale;         ///< of scores as powers of two: log2(e) times the op's
  const T* gate;       ///< null: none
  std::int64_t gate_stride;

  int rows_min = 1, rows_max = 0;  ///< of the spans that this launch takes
  unsigned* tickets = nullptr;
  float* records = nullptr;
  std::int64_t records_max = 0;

  /// The first key that a row at position `own` sees.
  __device__ int first_key(int own) const { return own < window ? 0 : own - window + 1; }
  __device__ const float* sink_of(int kv_head, int row) const {
    return sinks == nullptr ? nullptr : sinks + kv_head * group + row % group;
  }
  /// The gate of a row's first dimension; null: none.
  __device__ const T* gate_of(int token, int kv_head, int row) const {
    return gate == nullptr ? nullptr : gate + offset_of(token, kv_head, row, gate_stride);
  }
  /// Row `row` of a span that begins at `token`, as an offset for a stride from token to token.
  __device__ std::int64_t offset_of(int token, int kv_head, int row, std::int64_t stride) const {
    return (token + row / group) * stride +
           (static_cast<std::int64_t>(kv_head) * group + row % group) * layout.head_dim;
  }
};

/// Some neighbouring rows of a span.
struct AttentionTile {
  int token, position, page_begin;  ///< of the span's first token; its first page's index
  int span_rows, span_runs;
  int first_row, rows;
  std::int64_t record;  ///< records of the spans before, for each kv head
};

/// Shared memory of find_tile.
struct TileSearch {
  SharedArray<std::int64_t, warp_size> tiles, records;  ///< of each warp
  SharedArray<AttentionTile, 1> found;
};

struct SpanShape {
  int token = 0, position = 0, page_begin = 0;
  int rows = 0, runs = 0, tiles = 0;
};

/// The shape of span r where a launch takes spans of rows_min .. rows_max rows; no tiles for
/// others.
template <typename Params>
__device__ __forceinline__ SpanShape shape_of(const Params& p, int r, int tile_rows) {
  if (r >= p.spans) return {};
  const int token = p.span_begin[r], tokens = p.span_begin[r + 1] - token;
  const int position = p.position[r], page_begin = p.page_begin[r], rows = tokens * p.group;
  if (rows < p.rows_min || rows > p.rows_max || rows == 0) return {};
  return {.token = token,
          .position = position,
          .page_begin = page_begin,
          .rows = rows,
          .runs = (position + tokens + attention_run - 1) / attention_run,
          .tiles = (rows + tile_rows - 1) / tile_rows};
}

__device__ __forceinline__ std::int64_t warp_scan(std::int64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const std::int64_t below = shuffle_up(value, static_cast<unsigned>(distance));
    if (lane >= distance) value += below;
  }
  return value;
}

/// Tile `index` of the launch, by a whole block: spans are counted off, each one's last tile first,
/// since it has the most keys. False where there are fewer tiles: a grid is sized for the most.
template <typename Params>
__device__ __forceinline__ bool find_tile(const Params& p, int tile_rows, std::int64_t index,
                                          TileSearch& shared) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int threads = static_cast<int>(blockDim.x);
  std::int64_t tiles_before = 0, records_before = 0;
  for (int first = 0; first < p.spans; first += threads) {
    const int r = first + thread;
    const SpanShape shape = shape_of(p, r, tile_rows);
    const std::int64_t own = static_cast<std::int64_t>(shape.rows) * shape.runs;
    std::int64_t tiles = warp_scan(shape.tiles), records = warp_scan(own);
    if (thread % warp_size == warp_size - 1) {
      shared.tiles[warp] = tiles;
      shared.records[warp] = records;
    }
    sync_block();
    tiles += tiles_before - shape.tiles;  // now what stands before this span
    records += records_before - own;
    for (int i = 0; i < threads / warp_size; ++i) {
      tiles += i < warp ? shared.tiles[i] : 0;
      records += i < warp ? shared.records[i] : 0;
      tiles_before += shared.tiles[i];
      records_before += shared.records[i];
    }
    const bool is_mine = index >= tiles && index < tiles + shape.tiles;
    if (is_mine) {
      const int first_row = (shape.tiles - 1 - static_cast<int>(index - tiles)) * tile_rows;
      const int left = shape.rows - first_row;
      shared.found[0] = {.token = shape.token,
                         .position = shape.position,
                         .page_begin = shape.page_begin,
                         .span_rows = shape.rows,
                         .span_runs = shape.runs,
                         .first_row = first_row,
                         .rows = left < tile_rows ? left : tile_rows,
                         .record = records};
    }
    if (sync_block_any(is_mine)) return true;
  }
  return false;
}

}  // namespace hyb::kernels::cuda
