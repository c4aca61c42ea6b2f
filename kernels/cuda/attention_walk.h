#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops/attention.h"

/// This file has what a block does with a tile of rows: it walks the keys and writes answers or
/// partials. `Rows` says where queries and keys come from: Rows::own_keys of the walk's last keys
/// are not in pages yet, and
///   prepare()        is called before a barrier of all threads that precedes every copy,
///   fill_queries()   after the first copies, and ends with queries for all or with their copies,
///   arrive(t, item)  when the thread's own pieces of an item of tile t have arrived.
namespace hyb::kernels::cuda {

/// Queries that are ready, and keys that are all in pages.
template <typename S, typename Params>
struct ReadyRows {
  static constexpr int own_keys = 0;

  const Params& p;
  int kv_head;
  AttentionShared<S>& shared;

  __device__ __forceinline__ void prepare() const {  // with the first keys' group
    copy_queries<S>(p, shared.search.found[0], kv_head, shared);
  }
  __device__ __forceinline__ void fill_queries() const {}
  __device__ __forceinline__ void arrive(int, int) const {}
};

/// Returns the runs of a tile that belong to `part`.
template <typename Params>
__device__ __forceinline__ KeyWalk walk_of(const Params& p, const AttentionTile& tile,
                                           std::int64_t semaphore, int part) {
  const int first = tile.position + tile.first_row / p.group;
  const int last = tile.position + (tile.first_row + tile.rows - 1) / p.group;
  KeyWalk walk(p.first_key(first), p.first_key(last), last + 1);
  const std::int64_t partials =
      (tile.partial + static_cast<std::int64_t>(tile.span_rows) * tile.span_runs) * p.kv_heads;
  if (semaphore < semaphores_max && partials <= p.partials_max) {
    walk.share(part, p.parts < walk.runs ? p.parts : walk.runs);
  }
  return walk;
}

/// Stores a warp's weights where all column warps find them.
template <typename S>
__device__ __forceinline__ void share_weights(const std::uint32_t (&pairs)[S::scores][2],
                                              int warp_row, int column_warp,
                                              AttentionShared<S>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int n = 0; n < S::scores; ++n) {
      const int key = (column_warp * S::scores + n) * 8 + lane % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(&shared.weights[warp_row + lane / 4 + i * 8][key]) =
          pairs[n][i];
    }
  }
}

/// A tile's weights as operands: the warp's own, or what all column warps have shared.
template <typename S>
__device__ __forceinline__ void load_weights(const std::uint32_t (&pairs)[S::scores][2],
                                             int warp_row, AttentionShared<S>& shared,
                                             std::uint32_t (&weights)[tile_keys / 16][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < tile_keys / 16; ++k) {
    if constexpr (S::column_warps == 1) {
      for (int i = 0; i < 4; ++i) weights[k][i] = pairs[2 * k + i / 2][i % 2];
    } else {
      ldmatrix_x4(weights[k], &shared.weights[warp_row + lane % 16][k * 16 + lane / 16 * 8]);
    }
  }
}

/// Walks the block's keys and calls run_ends(run, its sums) after each run. What is not needed all
/// the time is in shared memory: registers are scarce.
template <typename S, typename Params, typename Rows, typename RunEnds>
__device__ __forceinline__ void walk_keys(const Params& p, int kv_head, const Rows& rows,
                                          AttentionShared<S>& shared, RunEnds run_ends) {
  const AttentionTile& tile = shared.search.found[0];
  const KeyWalk& walk = shared.walk[0];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int warp_row = warp / S::column_warps * 16, column_warp = warp % S::column_warps;
  const auto place = [&](int t) {
    const int key = t < walk.tiles ? walk.key_of(t) + thread % tile_keys : walk.end;
    return place_of_key(p, tile, kv_head, key, walk);
  };
  std::int64_t next = 0;
  if (thread < tile_keys) {
    for (int t = 0; t + 1 < places_kept; ++t) shared.places[t * tile_keys + thread] = place(t);
    next = place(places_kept - 1);
  }
  rows.prepare();
  sync_block();
  for (int i = 0; i + 1 < S::stages; ++i) copy_item<S>(p, walk, i, Rows::own_keys, shared);
  rows.fill_queries();

  RowSums<S> part;
  part.clear();
  for (int t = 0; t < walk.tiles; ++t) {
    if constexpr (S::is_coded && S::wide_tiles == 1) sync_block();  // all have left the values
    cp_async_wait<S::stages - 2>();
    rows.arrive(t, 2 * t);
    shared.ring.arrive(2 * t);
    sync_block();  // the keys have arrived for all, and all are done with what is written next
    if (thread < tile_keys) {
      shared.places[(t + places_kept - 1) % places_kept * tile_keys + thread] = next;
    }
    copy_item<S>(p, walk, 2 * t + S::stages - 1, Rows::own_keys, shared);
    const int key = walk.key_of(t), warp_key = column_warp * S::scores * 8;
    float scores[S::scores][4], largest[2];
    score_keys<S>(shared, shared.ring.tile(2 * t), warp_row, warp_key, scores);
    cap_scores<S>(p, scores);
    if (key + tile_keys - 1 > shared.reach[0].last || key < walk.whole) {
      mask_scores<S>(shared, warp_row, key + warp_key, scores);
    }
    find_largest<S>(scores, warp_row, column_warp, shared, largest);
    std::uint32_t pairs[S::scores][2], weights[tile_keys / 16][4];
    weigh<S>(scores, largest, p.scale, part, pairs);
    if constexpr (S::column_warps > 1) share_weights<S>(pairs, warp_row, column_warp, shared);
    cp_async_wait<S::stages - 2>();
    rows.arrive(t, 2 * t + 1);
    shared.ring.arrive(2 * t + 1);
    sync_block();  // the values, and all weights
    copy_item<S>(p, walk, 2 * t + S::stages, Rows::own_keys, shared);
    if (thread < tile_keys) next = place(t + places_kept);
    load_weights<S>(pairs, warp_row, shared, weights);
    add_values<S>(weights, shared.ring.tile(2 * t + 1), column_warp, part);
    if ((t + 1) % KeyWalk::tiles_of_run == 0 || t + 1 == walk.tiles) {
      run_ends(walk.run_of(t), part);
      part.clear();
    }
  }
}

template <typename S, typename Params>
__device__ __forceinline__ void write_rows(const Params& p, const AttentionTile& tile, int kv_head,
                                           const RowSums<S>& total) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int lane = thread % warp_size, column_warp = warp % S::column_warps;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp / S::column_warps * 16 + lane / 4 + i * 8;
    if (row >= tile.rows) continue;
    const float* const sink = p.sink_of(kv_head, tile.first_row + row);
    const float scale =
        1.0F / weights_with_sink(total.weights[2 * i], total.largest[i], p.scale, sink);
    bf16* const y = p.y + p.offset_of(tile.token, kv_head, tile.first_row + row, p.y_stride);
    const RowGate<bf16> gate = p.gate_of(tile.token, kv_head, tile.first_row + row);
#pragma unroll
    for (int n = 0; n < S::sums; ++n) {
      const int column = (column_warp * S::sums + n) * 8 + lane % 4 * 2;
      if (column >= p.kv.layout.head_dim) continue;
      *reinterpret_cast<std::uint32_t*>(y + column) =
          gated_pair(total.sums[n][2 * i] * scale, total.sums[n][2 * i + 1] * scale, gate, column);
    }
  }
}

/// The block's tile of a grid (tiles of rows, kv heads, parts of the runs), where there is one:
/// walk_block(run_ends) walks its keys as walk_keys does.
/// Within 2^-8 * sum_p w_p |v_p| + 2^-8 |y| of the plain loop, w being the weights after softmax,
/// not counting the error of f32 scores: weights are rounded to bf16 before they are multiplied by
/// values and are summed as rounded. Values past a row's own position must be finite where they
/// share a tile with it: they are multiplied by zero.
template <typename S, typename Params, typename WalkBlock>
__device__ __forceinline__ void attend_tile(const Params& p, AttentionShared<S>& shared,
                                            WalkBlock walk_block) {
  const int kv_head = static_cast<int>(blockIdx.y);
  const std::int64_t semaphore = static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  if (!find_tile(p, S::rows, blockIdx.x, shared.search)) return;
  const AttentionTile& tile = shared.search.found[0];
  const KeyWalk& walk = shared.walk[0];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    shared.walk[0] = walk_of(p, tile, semaphore, static_cast<int>(blockIdx.z));
  }
  if (thread < S::rows) {
    const int position = tile.position + (tile.first_row + thread) / p.group;
    shared.reach[thread] = {.first = p.first_key(position), .last = position};
  }
  sync_block();
  if (static_cast<int>(blockIdx.z) >= walk.parts) return;
  if (walk.parts == 1) {
    RowSums<S> total;
    total.clear();
    walk_block([&](int, const RowSums<S>& part) { merge(total, part, p.scale); });
    return write_rows<S>(p, tile, kv_head, total);
  }
  walk_block(
      [&](int run, const RowSums<S>& part) { write_partials<S>(p, tile, kv_head, run, part); });
  if (p.merges_apart) return;
  if (is_last_of(walk.parts, p.semaphores + semaphore, shared.is_last)) {
    merge_partials<S::value_dim, 4>(p, tile, kv_head, walk, thread, S::threads);
  }
}

inline constexpr int merge_threads = 128;

/// Merges the partials of a tile: grid (tiles, kv heads, slices of a tile's rows and dimensions).
template <int HeadDim, int Rows, typename K>
__global__ void __launch_bounds__(merge_threads)
    attention_merge_kernel(const AttentionParams<bf16, K> p) {
  auto& search = shared_object<TileSearch>();
  const int kv_head = static_cast<int>(blockIdx.y);
  const std::int64_t semaphore = static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  start_next_and_wait();
  if (!find_tile(p, Rows, blockIdx.x, search)) return;
  const AttentionTile& tile = search.found[0];
  const KeyWalk walk = walk_of(p, tile, semaphore, 0);
  if (walk.parts == 1) return;  // its block has written the answers
  merge_partials<HeadDim, 16>(p, tile, kv_head, walk,
                              static_cast<int>(blockIdx.z * blockDim.x + threadIdx.x),
                              static_cast<int>(gridDim.z * blockDim.x));
}

/// Blocks wanted: some for each multiprocessor of a large card. Parts of the runs are shared out
/// where there are fewer.
inline constexpr std::int64_t blocks_wanted = 384;

/// Dimensions of the tiles for heads of `head_dim` dimensions.
inline std::int64_t tile_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// The op's workspace as semaphores and partials of `dim` dimensions.
template <typename Params>
void set_workspace(const PagedAttention& op, std::int64_t dim, Params& params) {
  constexpr std::int64_t semaphores_bytes = semaphores_max * sizeof(unsigned);
  if (op.workspace.empty()) return;
  auto* const bytes = static_cast<std::byte*>(op.workspace.data);
  const std::int64_t size =
      op.workspace.size() * static_cast<std::int64_t>(size_of(op.workspace.dtype));
  params.semaphores = reinterpret_cast<unsigned*>(bytes);
  params.partials = reinterpret_cast<float*>(bytes + semaphores_bytes);
  params.partials_max =
      std::max<std::int64_t>(0, size - semaphores_bytes) / (partial_floats(dim) * 4);
}

/// The most runs that a span can have.
inline std::int64_t runs_max(const PagedAttention& op) {
  const std::int64_t positions =
      op.positions > 0 ? op.positions : op.kv.pages.dim(0) * op.kv.page_tokens;
  return std::max<std::int64_t>(1, pieces(positions, attention_run));
}

/// More runs than these are merged by a kernel of its own: the last of a tile's blocks alone would
/// read for longer than all blocks took to walk the keys.
inline constexpr std::int64_t runs_merged_by_last_block = 16;

/// A block has this much shared memory on every card from sm_80 on: sm_86 and sm_89 have no more.
inline constexpr std::size_t shared_bytes_everywhere = 99 << 10;

/// A kernel of shape S with a Shared in dynamic shared memory, over at most `tiles` tiles of spans
/// of rows_min .. rows_max rows.
template <typename S, typename Shared, typename Params>
void launch_tiles(Stream& stream, void (*kernel)(Params), Params params, std::int64_t tiles,
                  std::int64_t runs, std::int64_t rows_min, std::int64_t rows_max) {
  static_assert(S::wide_tiles == 2 || S::column_warps > 1, "a barrier between scores and values");
  params.rows_min = static_cast<int>(rows_min);
  params.rows_max = static_cast<int>(std::min<std::int64_t>(rows_max, INT32_MAX));
  const std::int64_t blocks = tiles * params.kv_heads;
  const std::int64_t parts =
      params.partials_max == 0 ? 1 : std::clamp<std::int64_t>(blocks_wanted / blocks, 1, runs);
  params.parts = static_cast<int>(parts);
  params.merges_apart = parts > 1 && runs > runs_merged_by_last_block;
  const auto grid = [&](unsigned z) {
    return dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(params.kv_heads), z);
  };
  launch(stream,
         {.blocks = grid(static_cast<unsigned>(parts)),
          .threads = S::threads,
          .shared_bytes = sizeof(Shared)},
         kernel, params);
  if (!params.merges_apart) return;
  const AttentionParams<bf16, typename S::Kv>& merged = params;
  launch(
      stream,
      {.blocks = grid(pieces(S::rows * S::value_dim / 4, merge_threads)), .threads = merge_threads},
      attention_merge_kernel<S::value_dim, S::rows, typename S::Kv>, merged);
}

}  // namespace hyb::kernels::cuda
