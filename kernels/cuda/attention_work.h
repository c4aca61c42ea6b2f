#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/attention.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels::cuda {

/// Split-KV. Keys are taken in tiles of tile_keys, tiles in runs of attention_run, both counted
/// from position 0. Within a run scores are taken against a running maximum; runs are merged in
/// ascending order. Every route and tile size does the same sums in the same order, so a row's
/// answer does not depend on how a sequence is cut, on how runs are shared, or on the other rows.
inline constexpr int tile_keys = 64;
inline constexpr int attention_run = 256;

/// The gates of a row's dimensions, or one for all of them; none where `first` is null.
template <typename T>
struct RowGate {
  const T* first;
  bool is_per_head;

  __device__ float of(int column) const { return to_float(first[is_per_head ? 0 : column]); }
};

/// Holds what all routes read. Row r of a span and kv head is query head r % group of token r /
/// group.
template <typename T, typename K>
struct AttentionParams {
  using Activation = T;
  using Kv = K;
  using Query = KvOperand<K>;  ///< as which queries meet keys in the plain route

  PageParams<K> kv;
  const T* q;
  T* y;
  std::int64_t q_stride, y_stride;
  int kv_heads, group;
  const float* sinks;  ///< of each head; null: none
  int window;          ///< positions that a row attends to; larger than all: no window
  int chunk;           ///< of positions; larger than all: no chunks
  float cap_scale;     ///< of products q . k before their tanh is taken; 0: no softcap
  float scale;         ///< of scores as powers of two: log2(e) times the op's scale or softcap
  const T* gate;       ///< null: none
  std::int64_t gate_stride;
  int gate_dim;  ///< gates of a head: head_dim, or 1 for all its dimensions

  int rows_min = 1, rows_max = 0;  ///< of the spans that this launch takes
  unsigned* semaphores = nullptr;
  float* partials = nullptr;
  std::int64_t partials_max = 0;
  int parts = 1;              ///< among which a tile's runs are shared, if it has as many
  bool merges_apart = false;  ///< partials are merged by a kernel of its own

  /// Numbers of a key, where one lies in its page, and from its start to its values.
  __device__ int key_dim() const { return kv.layout.head_dim; }
  __device__ std::int64_t key(int kv_head, int place) const {
    return kv.layout.key(kv_head, place);
  }
  __device__ std::int64_t value_offset() const { return kv.layout.value_offset(); }
  /// Number d of a token's query head.
  __device__ float query(int token, int head, int d) const {
    return to_float(q[token * q_stride + static_cast<std::int64_t>(head) * kv.layout.head_dim + d]);
  }
  /// The first key that a row at position `own` attends to.
  __device__ int first_key(int own) const {
    const int in_window = own < window ? 0 : own - window + 1;
    const int in_chunk = own < chunk ? 0 : own / chunk * chunk;
    return in_window > in_chunk ? in_window : in_chunk;
  }
  /// A product q . k as a score that `scale` is for, where there is a softcap.
  __device__ float capped(float product) const { return tanh_fast(product * cap_scale); }
  __device__ const float* sink_of(int kv_head, int row) const {
    return sinks == nullptr ? nullptr : sinks + kv_head * group + row % group;
  }
  __device__ RowGate<T> gate_of(int token, int kv_head, int row) const {
    if (gate == nullptr) return {nullptr, false};
    return {gate + offset_of(token, kv_head, row, gate_stride, gate_dim), gate_dim == 1};
  }
  /// Row `row` of a span that starts at `token`, as an offset for a stride from token to token and
  /// `dim` numbers of a head.
  __device__ std::int64_t offset_of(int token, int kv_head, int row, std::int64_t stride,
                                    int dim) const {
    return (token + row / group) * stride +
           (static_cast<std::int64_t>(kv_head) * group + row % group) * dim;
  }
  __device__ std::int64_t offset_of(int token, int kv_head, int row, std::int64_t stride) const {
    return offset_of(token, kv_head, row, stride, kv.layout.head_dim);
  }
};

/// The keys that a row attends to: first and last.
struct RowReach {
  int first, last;
};

/// Some neighbouring rows of a span.
struct AttentionTile {
  int token, position, page_begin;  ///< of the span's first token; its first page's index
  int span_rows, span_runs;
  int first_row, rows;
  std::int64_t partial;  ///< partials of the spans before, for each kv head
};

/// Shared memory of find_tile.
struct TileSearch {
  SharedArray<std::int64_t, warp_size> tiles, partials;  ///< of each warp
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
  if (r >= p.kv.spans) return {};
  const int token = p.kv.span_begin[r], tokens = p.kv.span_begin[r + 1] - token;
  const int position = p.kv.position[r], page_begin = p.kv.page_begin[r], rows = tokens * p.group;
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
  std::int64_t tiles_before = 0, partials_before = 0;
  for (int first = 0; first < p.kv.spans; first += threads) {
    const int r = first + thread;
    const SpanShape shape = shape_of(p, r, tile_rows);
    const std::int64_t own = static_cast<std::int64_t>(shape.rows) * shape.runs;
    std::int64_t tiles = warp_scan(shape.tiles), partials = warp_scan(own);
    if (thread % warp_size == warp_size - 1) {
      shared.tiles[warp] = tiles;
      shared.partials[warp] = partials;
    }
    sync_block();
    tiles += tiles_before - shape.tiles;  // now those of the spans before this one
    partials += partials_before - own;
    for (int i = 0; i < threads / warp_size; ++i) {
      tiles += i < warp ? shared.tiles[i] : 0;
      partials += i < warp ? shared.partials[i] : 0;
      tiles_before += shared.tiles[i];
      partials_before += shared.partials[i];
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
                         .partial = partials};
    }
    if (sync_block_any(is_mine)) return true;
  }
  return false;
}

/// The arithmetic of a running maximum, the same in every route, and spelled so that no compiler
/// fuses it in one place and not in another.

inline constexpr float no_score = -__builtin_inff();

/// A maximum that can be subtracted: rows without a key have none.
__device__ __forceinline__ float subtrahend(float largest) {
  return largest == no_score ? 0.0F : largest;
}

/// Returns what sums made under `from` are worth under a maximum that is at least as large. 1
/// exactly where the maximum is the same, 0 where `from` had no key.
__device__ __forceinline__ float shrink_of(float from, float to, float scale) {
  return exp2_fast((from - subtrahend(to)) * scale);
}

__device__ __forceinline__ float merged(float total, float keep, float part, float add) {
  return fmaf(part, add, total * keep);
}

/// The sum of a row's weights, a sink's with it: a score that takes weight and has no value.
__device__ __forceinline__ float weights_with_sink(float weights, float largest, float scale,
                                                   const float* sink) {
  constexpr float log2_e = 1.44269504F;
  return sink == nullptr ? weights : weights + exp2_fast(fmaf(-largest, scale, *sink * log2_e));
}

// An answer of attention as it is written: rounded, and where there is a gate times its sigmoid
// and rounded again.

template <typename T>
__device__ __forceinline__ T gated(float value, const RowGate<T>& gate, int column) {
  const T plain = rounded<T>(value);
  if (gate.first == nullptr) return plain;
  return rounded<T>(to_float(plain) * sigmoid(gate.of(column)));
}

/// Two neighbours from `column` on; gates of dimensions are aligned to both.
__device__ __forceinline__ std::uint32_t gated_pair(float low, float high,
                                                    const RowGate<bf16>& gate, int column) {
  const std::uint32_t pair = pack_bf16(low, high);
  if (gate.first == nullptr) return pair;
  if (gate.is_per_head) {
    const float factor = sigmoid(to_float(*gate.first));
    return pack_bf16(std::bit_cast<float>(pair << 16) * factor,
                     std::bit_cast<float>(pair & 0xffff0000U) * factor);
  }
  const float2 z = load_pair(gate.first + column);
  return pack_bf16(std::bit_cast<float>(pair << 16) * sigmoid(z.x),
                   std::bit_cast<float>(pair & 0xffff0000U) * sigmoid(z.y));
}

/// The two routes of attention. Which of them an op takes depends on types, head_dim and alignment
/// only.

/// q, y and gate of bf16, pages of bf16 or F8_E4M3, all rows 16-byte aligned (a gate per head in
/// any way); head_dim a multiple of 8, of F8_E4M3 of 16, up to 256, best 64, 128 or 256 itself.
/// Answers over pages of F8_E4M3 are to the bit those over pages of bf16 with the same numbers.
bool fits_attention_matrix(const PagedAttention& op);
void attention_matrix(Stream& stream, const PagedAttention& op);

/// Everything else.
void attention_plain(Stream& stream, const PagedAttention& op);

template <typename T, typename K>
AttentionParams<T, K> attention_params(const PagedAttention& op) {
  constexpr float log2_e = 1.44269504F;
  return {.kv = page_params<K>(op.kv, op.head_dim),
          .q = op.q.as<T>(),
          .y = op.y.as<T>(),
          .q_stride = op.q.row_stride,
          .y_stride = op.y.row_stride,
          .kv_heads = static_cast<int>(op.kv_heads),
          .group = static_cast<int>(op.heads / op.kv_heads),
          .sinks = op.sinks.as<float>(),
          .window = op.window == 0 ? INT32_MAX : static_cast<int>(op.window),
          .chunk = op.chunk == 0 ? INT32_MAX : static_cast<int>(op.chunk),
          .cap_scale = op.softcap == 0.0F ? 0.0F : op.scale / op.softcap,
          .scale = (op.softcap == 0.0F ? op.scale : op.softcap) * log2_e,
          .gate = op.gate.as<T>(),
          .gate_stride = op.gate.row_stride,
          .gate_dim = static_cast<int>(op.gate_dim())};
}

}  // namespace hyb::kernels::cuda
