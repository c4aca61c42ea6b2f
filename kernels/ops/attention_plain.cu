#include <cmath>

#include "kernels/cuda/attention_gate.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_routes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/spans.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/kv_operand.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
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
  int kv_head, begin, end;  ///< keys begin .. end - 1 are seen

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
  return dot;
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
/// (1 + |scale| * |q| |k|) of the plain loop, besides the rounding of y.
template <int Dims, typename T, typename K>
__global__ void __launch_bounds__(block_warps* warp_size, 4)
    attention_plain_kernel(const AttentionParams<T, K> p) {
  auto& q = shared_object<Shared>().q[static_cast<int>(threadIdx.x) / warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * block_warps +
                            static_cast<int>(threadIdx.x) / warp_size;
  const int heads = p.kv_heads * p.group, token = static_cast<int>(item / heads);
  const int head = static_cast<int>(item % heads), head_dim = p.layout.head_dim;
  let_next_kernel_start();
  wait_for_previous_kernel();
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
  const T* const gate = p.gate == nullptr ? nullptr : p.gate + token * p.gate_stride + column;
#pragma unroll
  for (int i = 0; i < Dims; ++i) {
    const int d = lane + i * warp_size;
    if (d < head_dim) y[d] = gated(total.sums[i] * scale, gate == nullptr ? nullptr : gate + d);
  }
}

template <int Dims, typename T, typename K>
void run(Stream& stream, const Attention& op) {
  launch(stream,
         {.blocks = pieces(op.q.dim(0) * op.heads, block_warps),
          .threads = block_warps * warp_size,
          .starts_early = true},
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

}  // namespace hyb::kernels::cuda
