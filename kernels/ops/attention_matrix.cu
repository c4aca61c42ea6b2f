#include <algorithm>
#include <bit>

#include "kernels/cuda/attention_records.h"
#include "kernels/cuda/attention_routes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"

namespace hyb::kernels::cuda {
namespace {

template <typename S>
using Params = AttentionParams<bf16, typename S::Kv>;

/// Which runs of a tile this block takes.
template <typename P>
__device__ __forceinline__ KeyWalk walk_of(const P& p, const AttentionTile& tile,
                                           std::int64_t ticket) {
  const int first = tile.position + tile.first_row / p.group;
  const int last = tile.position + (tile.first_row + tile.rows - 1) / p.group;
  KeyWalk walk(p.first_key(first), p.first_key(last), last + 1);
  const std::int64_t records =
      (tile.record + static_cast<std::int64_t>(tile.span_rows) * tile.span_runs) * p.kv_heads;
  if (ticket < tickets_max && records <= p.records_max) {
    const int parts = static_cast<int>(gridDim.z), part = static_cast<int>(blockIdx.z);
    walk.share(part, parts < walk.runs ? parts : walk.runs);
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
                                             std::uint32_t (&weights)[attention_step / 16][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int k = 0; k < attention_step / 16; ++k) {
    if constexpr (S::column_warps == 1) {
      for (int i = 0; i < 4; ++i) weights[k][i] = pairs[2 * k + i / 2][i % 2];
    } else {
      ldmatrix_x4(weights[k], &shared.weights[warp_row + lane % 16][k * 16 + lane / 16 * 8]);
    }
  }
}

/// Walks the block's keys and calls run_ends(run, its sums) after each run. What is not needed all
/// the time stands in shared memory: registers are scarce.
template <typename S, typename RunEnds>
__device__ __forceinline__ void walk_keys(const Params<S>& p, int kv_head,
                                          AttentionShared<S>& shared, RunEnds run_ends) {
  const AttentionTile& tile = shared.search.found[0];
  const KeyWalk& walk = shared.walk[0];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int warp_row = warp / S::column_warps * 16, column_warp = warp % S::column_warps;
  const auto place = [&](int t) {
    const int key = t < walk.tiles ? walk.key_of(t) + thread % attention_step : walk.end;
    return place_of_key(p, tile, kv_head, key, walk);
  };
  std::int64_t next = 0;
  if (thread < attention_step) {
    for (int t = 0; t + 1 < places_kept; ++t) shared.places[t * attention_step + thread] = place(t);
    next = place(places_kept - 1);
  }
  copy_queries<S>(p, tile, kv_head, shared);  // with the first keys' group
  sync_block();
  for (int i = 0; i + 1 < S::stages; ++i) copy_item<S>(p, walk, i, shared);

  RowSums<S> part;
  part.clear();
  for (int t = 0; t < walk.tiles; ++t) {
    if constexpr (S::is_coded && S::wide_tiles == 1) sync_block();  // all have left the values
    cp_async_wait<S::stages - 2>();
    shared.ring.arrive(2 * t);
    sync_block();  // the keys are there for all, and all have left what is written next
    if (thread < attention_step) {
      shared.places[(t + places_kept - 1) % places_kept * attention_step + thread] = next;
    }
    copy_item<S>(p, walk, 2 * t + S::stages - 1, shared);
    const int key = walk.key_of(t), warp_key = column_warp * S::scores * 8;
    float scores[S::scores][4], largest[2];
    score_keys<S>(shared, shared.ring.tile(2 * t), warp_row, warp_key, scores);
    if (key + attention_step - 1 > shared.position[0] || key < walk.whole) {
      mask_scores<S>(p, shared, warp_row, key + warp_key, scores);
    }
    find_largest<S>(scores, warp_row, column_warp, shared, largest);
    std::uint32_t pairs[S::scores][2], weights[attention_step / 16][4];
    weigh<S>(scores, largest, p.scale, part, pairs);
    if constexpr (S::column_warps > 1) share_weights<S>(pairs, warp_row, column_warp, shared);
    cp_async_wait<S::stages - 2>();
    shared.ring.arrive(2 * t + 1);
    sync_block();  // the values, and all weights
    copy_item<S>(p, walk, 2 * t + S::stages, shared);
    if (thread < attention_step) next = place(t + places_kept);
    load_weights<S>(pairs, warp_row, shared, weights);
    add_values<S>(weights, shared.ring.tile(2 * t + 1), column_warp, part);
    if ((t + 1) % KeyWalk::steps_of_run == 0 || t + 1 == walk.tiles) {
      run_ends(walk.run_of(t), part);
      part.clear();
    }
  }
}

template <typename S>
__device__ __forceinline__ void write_rows(const Params<S>& p, const AttentionTile& tile,
                                           int kv_head, const RowSums<S>& total) {
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
    const bf16* const gate = p.gate_of(tile.token, kv_head, tile.first_row + row);
#pragma unroll
    for (int n = 0; n < S::sums; ++n) {
      const int column = (column_warp * S::sums + n) * 8 + lane % 4 * 2;
      if (column >= p.layout.head_dim) continue;
      *reinterpret_cast<std::uint32_t*>(y + column) =
          gated_pair(total.sums[n][2 * i] * scale, total.sums[n][2 * i + 1] * scale,
                     gate == nullptr ? nullptr : gate + column);
    }
  }
}

/// grid (tiles of rows, kv heads, parts of the runs). Within 2^-8 * sum_p w_p |v_p| + 2^-8 |y| of
/// the plain loop, w being the weights after softmax, besides what f32 scores are off: weights are
/// rounded to bf16 before they meet values and are summed as rounded. Values behind a row's own
/// position must be finite where they share a tile with it: they are multiplied by zero.
template <typename S>
__global__ void __launch_bounds__(S::threads, 1) attention_kernel(const Params<S> p) {
  auto& shared = dynamic_shared<AttentionShared<S>>();
  const int kv_head = static_cast<int>(blockIdx.y);
  const std::int64_t ticket = static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (!find_tile(p, S::rows, blockIdx.x, shared.search)) return;
  const AttentionTile& tile = shared.search.found[0];
  const KeyWalk& walk = shared.walk[0];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) shared.walk[0] = walk_of(p, tile, ticket);
  if (thread < S::rows) {
    shared.position[thread] = tile.position + (tile.first_row + thread) / p.group;
  }
  sync_block();
  if (static_cast<int>(blockIdx.z) >= walk.parts) return;
  if (walk.parts == 1) {
    RowSums<S> total;
    total.clear();
    walk_keys<S>(p, kv_head, shared,
                 [&](int, const RowSums<S>& part) { merge(total, part, p.scale); });
    return write_rows<S>(p, tile, kv_head, total);
  }
  walk_keys<S>(p, kv_head, shared, [&](int run, const RowSums<S>& part) {
    write_records<S>(p, tile, kv_head, run, part);
  });
  if (is_last_of(walk.parts, p.tickets + ticket, shared.is_last)) {
    merge_records<S>(p, tile, kv_head, walk);
  }
}

/// Blocks wanted: some for each multiprocessor of a large card. Parts of the runs are shared out
/// where there are fewer.
constexpr std::int64_t blocks_wanted = 384;
/// Spans of so many rows and fewer go to the narrow tiles.
constexpr std::int64_t short_rows = 64;

template <typename S>
void launch_tiles(Stream& stream, Params<S> params, std::int64_t tiles, std::int64_t runs,
                  std::int64_t rows_min, std::int64_t rows_max) {
  static_assert(sizeof(AttentionShared<S>) <= 99 << 10, "what sm_86 and sm_89 have for a block");
  static_assert(S::wide_tiles == 2 || S::column_warps > 1, "a barrier between scores and values");
  params.rows_min = static_cast<int>(rows_min);
  params.rows_max = static_cast<int>(std::min<std::int64_t>(rows_max, INT32_MAX));
  const std::int64_t blocks = tiles * params.kv_heads;
  const std::int64_t parts =
      params.records_max == 0 ? 1 : std::clamp<std::int64_t>(blocks_wanted / blocks, 1, runs);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(params.kv_heads),
                         static_cast<unsigned>(parts)),
          .threads = S::threads,
          .shared_bytes = sizeof(AttentionShared<S>),
          .starts_early = true},
         attention_kernel<S>, params);
}

/// The most tiles that spans of rows_min rows and more can have in a step of so many rows.
std::int64_t tiles_max(std::int64_t rows, std::int64_t spans, std::int64_t rows_min,
                       std::int64_t tile_rows) {
  return rows / tile_rows + std::min(spans, rows / rows_min);
}

template <typename Narrow, typename Wide>
void launch_spans(Stream& stream, const Attention& op, const Params<Narrow>& params) {
  const std::int64_t tokens = op.q.dim(0), rows = tokens * params.group;
  const std::int64_t positions = op.pages.dim(0) * op.page_tokens;
  const std::int64_t runs = std::max<std::int64_t>(1, pieces(positions, attention_run));
  const bool all_narrow = tokens <= params.spans || rows <= short_rows;
  // A span of its own goes to one kind of tiles, so that a prompt is one launch.
  const std::int64_t wide_rows_min = params.spans == 1 ? 1 : short_rows + 1;
  if (all_narrow || wide_rows_min > 1) {
    // A token of its own has ceil(group / 16) tiles; tokens that share tiles have no more.
    const std::int64_t of_a_token = pieces(params.group, Narrow::rows);
    const std::int64_t tiles =
        std::min(tokens * of_a_token, all_narrow ? tiles_max(rows, params.spans, 1, Narrow::rows)
                                                 : params.spans * (short_rows / Narrow::rows));
    launch_tiles<Narrow>(stream, params, tiles, runs, 1, all_narrow ? INT64_MAX : short_rows);
  }
  if (all_narrow) return;
  launch_tiles<Wide>(stream, params, tiles_max(rows, params.spans, wide_rows_min, Wide::rows), runs,
                     wide_rows_min, INT64_MAX);
}

/// Dimensions of the tiles that heads of so many go through.
std::int64_t tile_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

template <typename K>
void attend(Stream& stream, const Attention& op) {
  auto params = attention_params<bf16, K>(op);
  constexpr std::int64_t tickets_bytes = tickets_max * sizeof(unsigned);
  if (!op.workspace.empty()) {
    auto* const bytes = static_cast<std::byte*>(op.workspace.data);
    const std::int64_t size =
        op.workspace.size() * static_cast<std::int64_t>(size_of(op.workspace.dtype));
    params.tickets = reinterpret_cast<unsigned*>(bytes);
    params.records = reinterpret_cast<float*>(bytes + tickets_bytes);
    params.records_max = std::max<std::int64_t>(0, size - tickets_bytes) /
                         (record_floats(tile_dim(op.head_dim)) * 4);
  }
  if (tile_dim(op.head_dim) == 64) {
    return launch_spans<AttentionShape<64, 1, 4, 4, K>, AttentionShape<64, 8, 1, 4, K>>(stream, op,
                                                                                        params);
  }
  if (tile_dim(op.head_dim) == 128) {
    return launch_spans<AttentionShape<128, 1, 4, 4, K>, AttentionShape<128, 8, 1, 3, K>>(
        stream, op, params);
  }
  constexpr int stages = sizeof(K) == 1 ? 3 : 2;
  launch_spans<AttentionShape<256, 1, 4, stages, K>, AttentionShape<256, 2, 4, 2, K>>(stream, op,
                                                                                 params);
}

}  // namespace

bool fits_attention_matrix(const Attention& op) {
  const auto is_matrix = [](const Tensor& x) {
    return x.dtype == DType::bf16 && is_vector_aligned(x.as<bf16>(), x.row_stride);
  };
  const Tensor& pages = op.pages_of_layer;
  const bool is_coded = pages.dtype == DType::f8_e4m3;
  const bool fits_pages =
      is_coded ? is_vector_aligned(pages.as<e4m3>(), pages.row_stride) : is_matrix(pages);
  return is_matrix(op.q) && is_matrix(op.y) && fits_pages &&
         (op.gate.empty() || is_matrix(op.gate)) && op.head_dim % (is_coded ? 16 : 8) == 0 &&
         op.head_dim <= 256;
}

void attention_matrix(Stream& stream, const Attention& op) {
  if (op.pages_of_layer.dtype == DType::f8_e4m3) return attend<e4m3>(stream, op);
  attend<bf16>(stream, op);
}

std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run - 1) / attention_run;
  return static_cast<std::size_t>(tickets_max * 4 +
                                  tokens * heads * runs * record_floats(tile_dim(head_dim)) * 4);
}

}  // namespace hyb::kernels::cuda
