#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_walk.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {

void attention(Stream& stream, const Attention& op) {
  require(op.scale > 0.0F, "attention: scale is positive on the device");
  require(op.head_dim <= attention_head_dim_max, "attention: head_dim is at most 512");
  if (op.q.dim(0) == 0 || op.span_begin.dim(0) == 1) return;
  if (fits_attention_matrix(op)) return attention_matrix(stream, op);
  attention_plain(stream, op);
}

namespace {

constexpr int block_warps = 4;
constexpr int head_dim_max = static_cast<int>(attention_head_dim_max);

struct Shared {
  SharedArray<SharedArray<float, head_dim_max>, block_warps> q;
};

/// What a warp knows of its row: lane l has dimensions l, l + 32, ...
template <int Dims>
struct LaneSums {
  float sums[Dims] = {};
  float weights = 0.0F, largest = no_score;
};

template <int Dims>
__device__ __forceinline__ void merge(LaneSums<Dims>& total, const LaneSums<Dims>& part,
                                      float scale) {
  const float largest = fmaxf(total.largest, part.largest);
  const float keep = shrink_of(total.largest, largest, scale);
  const float add = shrink_of(part.largest, largest, scale);
#pragma unroll
  for (int i = 0; i < Dims; ++i) total.sums[i] = merged(total.sums[i], keep, part.sums[i], add);
  total.weights = merged(total.weights, keep, part.weights, add);
  total.largest = largest;
}

/// Where the keys of one row are.
template <typename T, typename K>
struct RowKeys {
  const AttentionParams<T, K>& p;
  const std::int32_t* pages;
  int kv_head, begin, end;  ///< keys begin .. end - 1 are attended to

  __device__ const K* of(int key) const {
    const std::int64_t page = pages[key / p.layout.page_tokens];
    return p.arena + page * p.page_stride + p.layout.key(kv_head, key % p.layout.page_tokens);
  }
};

/// A lane's score with its own key.
template <typename T, typename K>
__device__ __forceinline__ float score_key(const RowKeys<T, K>& keys, int key,
                                           const SharedArray<float, head_dim_max>& q) {
  if (key < keys.begin || key >= keys.end) return no_score;
  const K* const k = keys.of(key);
  float dot = 0.0F;
  for (int d = 0; d < keys.p.layout.head_dim; ++d) dot = fmaf(q[d], to_float(k[d]), dot);
  return keys.p.cap_scale == 0.0F ? dot : keys.p.capped(dot);
}

/// 32 keys from `first` on: one to a lane for the scores, then one after the other for the values.
template <int Dims, typename T, typename K>
__device__ __forceinline__ void attend_keys(const RowKeys<T, K>& keys, int first,
                                            const SharedArray<float, head_dim_max>& q,
                                            LaneSums<Dims>& part) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float score = score_key(keys, first + lane, q), scale = keys.p.scale;
  float largest = fmaxf(part.largest, score);
  for (int bits = warp_size / 2; bits > 0; bits /= 2) {
    largest = fmaxf(largest, shuffle_xor(largest, bits));
  }
  const float shrink = shrink_of(part.largest, largest, scale);
  const float weight = exp2_fast((score - subtrahend(largest)) * scale);
  part.largest = largest;
  part.weights = part.weights * shrink;
  part.weights += warp_sum(weight);
#pragma unroll
  for (float& sum : part.sums) sum *= shrink;
  const int left = keys.end - first, count = left < warp_size ? left : warp_size;
  for (int j = first < keys.begin ? keys.begin - first : 0; j < count; ++j) {
    const float w = shuffle(weight, j);
    const K* const values = keys.of(first + j) + keys.p.layout.value_offset();
#pragma unroll
    for (int i = 0; i < Dims; ++i) {
      const int d = lane + i * warp_size;
      if (d < keys.p.layout.head_dim) part.sums[i] = fmaf(w, to_float(values[d]), part.sums[i]);
    }
  }
}

/// A warp owns a query head of a token. Within (head_dim + 64) * 2^-22 * sum_p w_p (|v_p| + |y|) *
/// (1 + |scale| * |q| |k|) of the plain loop, not counting the rounding of y.
template <int Dims, typename T, typename K>
__global__ void __launch_bounds__(block_warps* warp_size, 4)
    attention_plain_kernel(const AttentionParams<T, K> p) {
  auto& q = shared_object<Shared>().q[static_cast<int>(threadIdx.x) / warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * block_warps +
                            static_cast<int>(threadIdx.x) / warp_size;
  const int heads = p.kv_heads * p.group, token = static_cast<int>(item / heads);
  const int head = static_cast<int>(item % heads), head_dim = p.layout.head_dim;
  start_next_and_wait();
  if (token >= p.span_begin[p.spans]) return;  // whole warps
  const int span = span_of(p.span_begin, p.spans, token);
  const int position = p.position[span] + token - p.span_begin[span];
  const RowKeys<T, K> keys = {.p = p,
                              .pages = p.pages + p.page_begin[span],
                              .kv_head = head / p.group,
                              .begin = p.first_key(position),
                              .end = position + 1};

  const std::int64_t column = static_cast<std::int64_t>(head) * head_dim;
  for (int d = lane; d < head_dim; d += warp_size) {
    q[d] = to_float(rounded<KvOperand<K>>(to_float(p.q[token * p.q_stride + column + d])));
  }
  sync_warp();
  LaneSums<Dims> total;
  for (int run = keys.begin / attention_run * attention_run; run < keys.end; run += attention_run) {
    LaneSums<Dims> part;
    for (int first = run; first < run + attention_run && first < keys.end; first += warp_size) {
      attend_keys(keys, first, q, part);
    }
    merge(total, part, p.scale);
  }
  const float* const sink = p.sink_of(head / p.group, head % p.group);
  const float scale = 1.0F / weights_with_sink(total.weights, total.largest, p.scale, sink);
  T* const y = p.y + token * p.y_stride + column;
  const RowGate<T> gate = p.gate_of(token, head / p.group, head % p.group);
#pragma unroll
  for (int i = 0; i < Dims; ++i) {
    const int d = lane + i * warp_size;
    if (d < head_dim) y[d] = gated(total.sums[i] * scale, gate, d);
  }
}

template <int Dims, typename T, typename K>
void run(Stream& stream, const Attention& op) {
  launch(
      stream,
      {.blocks = pieces(op.q.dim(0) * op.heads, block_warps), .threads = block_warps * warp_size},
      attention_plain_kernel<Dims, T, K>, attention_params<T, K>(op));
}

}  // namespace

void attention_plain(Stream& stream, const Attention& op) {
  visit_float(op.q.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.pages_of_layer.dtype, [&]<typename K>(Tag<K>) {
      if (op.head_dim <= 128) return run<4, T, K>(stream, op);
      run<head_dim_max / warp_size, T, K>(stream, op);
    });
  });
}

namespace {

template <typename S>
using Params = AttentionParams<bf16, typename S::Kv>;

template <typename S>
__global__ void __launch_bounds__(S::threads, 1) attention_kernel(const Params<S> p) {
  auto& shared = dynamic_shared<AttentionShared<S>>();
  const ReadyRows<S, Params<S>> rows = {
      .p = p, .kv_head = static_cast<int>(blockIdx.y), .shared = shared};
  start_next_and_wait();
  attend_tile<S>(p, rows, shared);
}

/// Spans of at most this many rows go to the narrow tiles.
constexpr std::int64_t short_rows = 64;

/// The most tiles that spans of rows_min rows and more can have in a step of `rows` rows.
std::int64_t tiles_max(std::int64_t rows, std::int64_t spans, std::int64_t rows_min,
                       std::int64_t tile_rows) {
  return rows / tile_rows + std::min(spans, rows / rows_min);
}

template <typename Narrow, typename Wide>
void launch_spans(Stream& stream, const Attention& op, const Params<Narrow>& params) {
  static_assert(sizeof(AttentionShared<Narrow>) <= shared_bytes_everywhere);
  const std::int64_t tokens = op.q.dim(0), rows = tokens * params.group;
  const std::int64_t runs = runs_max(op);
  const bool all_narrow = tokens <= params.spans || rows <= short_rows;
  // A span of its own goes to one kind of tiles, so that a prompt is one launch.
  const std::int64_t wide_rows_min = params.spans == 1 ? 1 : short_rows + 1;
  if (all_narrow || wide_rows_min > 1) {
    // A token of its own has ceil(group / 16) tiles; tokens that share tiles have no more.
    const std::int64_t of_a_token = pieces(params.group, Narrow::rows);
    const std::int64_t tiles =
        std::min(tokens * of_a_token, all_narrow ? tiles_max(rows, params.spans, 1, Narrow::rows)
                                                 : params.spans * (short_rows / Narrow::rows));
    launch_tiles<Narrow, AttentionShared<Narrow>>(stream, attention_kernel<Narrow>, params, tiles,
                                                  runs, 1, all_narrow ? INT64_MAX : short_rows);
  }
  if (all_narrow) return;
  const std::int64_t tiles = tiles_max(rows, params.spans, wide_rows_min, Wide::rows);
  launch_tiles<Wide, AttentionShared<Wide>>(stream, attention_kernel<Wide>, params, tiles, runs,
                                            wide_rows_min, INT64_MAX);
}

/// Wide tiles for heads of 256: of 64 rows, with three tiles of keys and values in the ring, where
/// a block has room for them. Keys and values come from the second-level cache half as often then,
/// and the copies of one tile are under way while the one before is multiplied.
template <typename K, bool IsCapped>
void attend_256(Stream& stream, const Attention& op, const AttentionParams<bf16, K>& params) {
  using Small = AttentionShape<256, 2, 4, 2, K, IsCapped>;
  using Large = AttentionShape<256, 4, 2, 3, K, IsCapped>;
  static_assert(sizeof(AttentionShared<Small>) <= shared_bytes_everywhere);
  if (sizeof(AttentionShared<Large>) <= stream.shared_bytes_max()) {
    return launch_spans<NarrowShape<256, K, IsCapped>, Large>(stream, op, params);
  }
  launch_spans<NarrowShape<256, K, IsCapped>, Small>(stream, op, params);
}

template <typename K, bool IsCapped>
void attend(Stream& stream, const Attention& op) {
  using Wide64 = AttentionShape<64, 8, 1, 4, K, IsCapped>;
  using Wide128 = AttentionShape<128, 8, 1, 3, K, IsCapped>;
  static_assert(sizeof(AttentionShared<Wide64>) <= shared_bytes_everywhere);
  static_assert(sizeof(AttentionShared<Wide128>) <= shared_bytes_everywhere);
  auto params = attention_params<bf16, K>(op);
  set_workspace(op, params);
  switch (tile_dim(op.head_dim)) {
    case 64:
      return launch_spans<NarrowShape<64, K, IsCapped>, Wide64>(stream, op, params);
    case 128:
      return launch_spans<NarrowShape<128, K, IsCapped>, Wide128>(stream, op, params);
    default:
      attend_256<K, IsCapped>(stream, op, params);
  }
}

template <typename K>
void attend_pages(Stream& stream, const Attention& op) {
  if (op.softcap == 0.0F) return attend<K, false>(stream, op);
  attend<K, true>(stream, op);
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
  const bool fits_gate = op.gate.empty() || op.gate_dim() == 1 || is_matrix(op.gate);
  return is_matrix(op.q) && is_matrix(op.y) && fits_pages && fits_gate &&
         op.head_dim % (is_coded ? 16 : 8) == 0 && op.head_dim <= 256;
}

void attention_matrix(Stream& stream, const Attention& op) {
  if (op.pages_of_layer.dtype == DType::f8_e4m3) return attend_pages<e4m3>(stream, op);
  attend_pages<bf16>(stream, op);
}

std::size_t attention_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                      std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t runs = (positions + attention_run - 1) / attention_run;
  return static_cast<std::size_t>(semaphores_max * 4 +
                                  tokens * heads * runs * partial_floats(tile_dim(head_dim)) * 4);
}

}  // namespace hyb::kernels::cuda
