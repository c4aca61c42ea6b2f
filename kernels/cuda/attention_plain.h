#pragma once

#include <cstdint>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"

/// Attention of any types and widths: a warp for each query head of each token.
namespace hyb::kernels::cuda {

inline constexpr int plain_warps = 4;

/// Holds the query of a warp, for keys of up to Dims * 32 numbers.
template <int Dims>
using PlainQuery = SharedArray<float, Dims * warp_size>;
template <int Dims>
struct PlainQueries {
  SharedArray<PlainQuery<Dims>, plain_warps> q;
};

/// Holds what a warp knows of its row: lane l has dimensions l, l + 32, ...
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

/// Says where the keys of one row are.
template <typename Params>
struct RowKeys {
  const Params& p;
  int first_page, kv_head, begin, end;  ///< keys begin .. end - 1 are attended to

  __device__ const typename Params::Kv* of(int key) const {
    return p.kv.arena + p.kv.page_of(first_page, key) +
           p.key(kv_head, key % p.kv.layout.page_tokens);
  }
};

/// A lane's score with its own key.
template <int Dims, typename Params>
__device__ __forceinline__ float score_key(const RowKeys<Params>& keys, int key,
                                           const PlainQuery<Dims>& q) {
  if (key < keys.begin || key >= keys.end) return no_score;
  const auto* const k = keys.of(key);
  float dot = 0.0F;
  for (int d = 0; d < keys.p.key_dim(); ++d) dot = fmaf(q[d], to_float(k[d]), dot);
  return keys.p.cap_scale == 0.0F ? dot : keys.p.capped(dot);
}

/// 32 keys from `first` on: one to a lane for the scores, then one after the other for the values.
template <int Dims, typename Params>
__device__ __forceinline__ void attend_keys(const RowKeys<Params>& keys, int first,
                                            const PlainQuery<Dims>& q, LaneSums<Dims>& part) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float score = score_key<Dims>(keys, first + lane, q), scale = keys.p.scale;
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
    const auto* const values = keys.of(first + j) + keys.p.value_offset();
#pragma unroll
    for (int i = 0; i < Dims; ++i) {
      const int d = lane + i * warp_size;
      if (d < keys.p.kv.layout.head_dim) part.sums[i] = fmaf(w, to_float(values[d]), part.sums[i]);
    }
  }
}

/// A warp owns a query head of a token. Within (key_dim + 64) * 2^-22 * sum_p w_p (|v_p| + |y|) *
/// (1 + |scale| * |q| |k|) of the plain loop, not counting the rounding of y.
template <int Dims, typename Params>
__global__ void __launch_bounds__(plain_warps* warp_size, Dims > 16 ? 2 : 4)
    attention_plain_kernel(const Params p) {
  using T = typename Params::Activation;
  auto& q = shared_object<PlainQueries<Dims>>().q[static_cast<int>(threadIdx.x) / warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * plain_warps +
                            static_cast<int>(threadIdx.x) / warp_size;
  const int heads = p.kv_heads * p.group, token = static_cast<int>(item / heads);
  const int head = static_cast<int>(item % heads), head_dim = p.kv.layout.head_dim;
  start_next_and_wait();
  if (token >= p.kv.span_begin[p.kv.spans]) return;  // whole warps
  const int span = span_of(p.kv.span_begin, p.kv.spans, token);
  const int position = p.kv.position[span] + token - p.kv.span_begin[span];
  const RowKeys<Params> keys = {.p = p,
                                .first_page = p.kv.page_begin[span],
                                .kv_head = head / p.group,
                                .begin = p.first_key(position),
                                .end = position + 1};

  const std::int64_t column = static_cast<std::int64_t>(head) * head_dim;
  for (int d = lane; d < p.key_dim(); d += warp_size) {
    q[d] = to_float(rounded<typename Params::Query>(p.query(token, head, d)));
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

template <int Dims, typename Params>
void attend_plain(Stream& stream, const Params& params, std::int64_t tokens) {
  launch(stream,
         {.blocks = pieces(tokens * params.kv_heads * params.group, plain_warps),
          .threads = plain_warps * warp_size},
         attention_plain_kernel<Dims, Params>, params);
}

}  // namespace hyb::kernels::cuda
