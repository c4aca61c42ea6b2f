#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/ops/delta_rule.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

/// Says whether some span may be long enough for chunks to pay: a chunk takes about as long as a
/// few tokens one by one. The host knows the sum only.
bool may_have_long_spans(const DeltaRule& op) { return op.x.dim(0) >= op.read_slot.dim(0) + 31; }

}  // namespace

void delta_rule(Stream& stream, const DeltaRule& op) {
  const bool may_chunk = !stream.batch_invariant() && !op.token_by_token;
  if (may_chunk && may_have_long_spans(op) && delta_rule_chunked_takes(op)) {
    delta_rule_chunked(stream, op);
  } else {
    delta_rule_scan(stream, op);
  }
}

namespace {

constexpr int block_warps_max = 4;
constexpr int stage_tokens = 8;

/// From here on a large card has enough to do with blocks of four warps.
constexpr std::int64_t blocks_full = 264;

template <typename T, typename S>
struct Params : DeltaRuleParams<T, S> {
  bool x_is_aligned, a_is_aligned, state_is_aligned;
  int tokens_max;  ///< of a chain; longer ones are skipped
};

/// Decays of rows: as they come, and what they leave of the current tokens' rows.
template <typename T, int Rows>
struct alignas(16) SharedKeeps {
  SharedArray<SharedArray<T, Rows>, 2 * stage_tokens> raw;
  SharedArray<SharedArray<float, Rows>, stage_tokens> keeps;
};
struct NoKeeps {};

/// Tokens' q and k as they come, of which one stage is filled while the other is used; and the
/// current ones as the tile wants them.
template <typename T, int V, bool PerChannel>
struct alignas(16) Shared
    : std::conditional_t<PerChannel, SharedKeeps<T, V * delta_row_lanes>, NoKeeps> {
  static constexpr int rows = V * delta_row_lanes;

  SharedArray<SharedArray<T, rows>, 2 * stage_tokens> raw_q, raw_k;
  SharedArray<SharedArray<float, rows>, stage_tokens> q, k;
  SharedArray<float, stage_tokens> beta, keep, product;
};

/// Says what a block owns: a head, in one chain.
struct Share {
  int head, warps, first_token, last_token;
};

template <typename T, int Length>
__device__ __forceinline__ void copy_row(SharedArray<T, Length>& to, const T* from, int count,
                                         bool is_aligned) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (is_aligned) {
    for (int i = lane * vector_size<T>; i < count; i += warp_size * vector_size<T>) {
      cp_async16(&to[i], from + i);
    }
  } else {
    for (int i = lane; i < count; i += warp_size) to[i] = from[i];
  }
}

/// Copies the q and k of the tokens from `token` on, warp by warp, and their decays per channel.
template <typename T, typename S, int V, bool PerChannel>
__device__ __forceinline__ void copy_tokens(const Params<T, S>& p, const Share& share, int token,
                                            int stage, Shared<T, V, PerChannel>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  for (int i = warp; i < stage_tokens && token + i < share.last_token; i += share.warps) {
    const T* const q = p.x + (token + i) * p.x_stride + p.q_of(share.head);
    copy_row(shared.raw_q[stage * stage_tokens + i], q, p.rows, p.x_is_aligned);
    copy_row(shared.raw_k[stage * stage_tokens + i], q + p.k_distance(), p.rows, p.x_is_aligned);
    if constexpr (PerChannel) {
      copy_row(shared.raw[stage * stage_tokens + i],
               p.a + (token + i) * p.a_stride + std::int64_t{share.head} * p.rows, p.rows,
               p.a_is_aligned);
    }
  }
  cp_async_commit();
}

/// The copied tokens' keys, queries and gates.
template <typename T, typename S, int V, bool PerChannel>
__device__ __forceinline__ void make_tokens(const Params<T, S>& p, const Share& share, int token,
                                            int stage, Shared<T, V, PerChannel>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = warp; i < stage_tokens && token + i < share.last_token; i += share.warps) {
    const int from = stage * stage_tokens + i;
    const float rate = p.rate[share.head];
    const auto keep_of = [&](int, int row) {
      if constexpr (PerChannel) {
        float& keep = shared.keeps[i][row];
        keep = row >= p.rows ? 0.0F
                             : expf(log_keep(to_float(shared.raw[from][row]),
                                             p.dt_bias[std::int64_t{share.head} * p.rows + row],
                                             rate, p.decay_floor));
        return keep;
      } else {
        return 1.0F;
      }
    };
    const float product = delta_normalize<V>(&shared.raw_q[from][0], &shared.raw_k[from][0], p.rows,
                                             p.q_scale, shared.q[i], shared.k[i], keep_of);
    if (lane != 0) continue;
    const float b = to_float(p.b[(token + i) * p.b_stride + share.head]);
    shared.product[i] = product;
    shared.beta[i] = write_strength(b, p.beta_scale);
    if constexpr (!PerChannel) {
      const float a = to_float(p.a[(token + i) * p.a_stride + share.head]);
      shared.keep[i] = expf(log_keep(a, p.dt_bias[share.head], rate));
    }
  }
}

/// Blocks of a multiprocessor that registers leave room for; 0: as the compiler likes. With 4 for
/// Dk of 128 it spills.
template <int V>
constexpr int blocks_min = V == 4   ? 6
                           : V == 8 ? 5
                                    : 0;

/// grid (heads * column pieces, R): a warp owns 16 columns of a head's state in one chain of spans,
/// in registers from its first token to its last; the block, which is that of the chain's first
/// span, shares what the tokens bring. Sums over rows in f32 in a fixed order: within
/// (Dk + 16) * 2^-23 of the sum of their terms' magnitudes, for every token.
template <typename T, typename S, int V, bool PerChannel>
__global__ void __launch_bounds__(block_warps_max* warp_size, blocks_min<V>)
    delta_rule_scan_kernel(const Params<T, S> p) {
  auto& shared = dynamic_shared<Shared<T, V, PerChannel>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int spans = static_cast<int>(gridDim.y);
  Share share;
  share.warps = static_cast<int>(blockDim.x) / warp_size;
  const int pieces_of_head =
      (p.columns + share.warps * delta_columns - 1) / (share.warps * delta_columns);
  share.head = static_cast<int>(blockIdx.x) / pieces_of_head;
  const int first_column =
      (static_cast<int>(blockIdx.x) % pieces_of_head * share.warps + warp) * delta_columns;
  start_next_and_wait();
  int index = static_cast<int>(blockIdx.y);
  SpanEntry span = span_at(p, index, spans);
  if (span.continues_previous || span.first == span.last) return;
  share.first_token = span.first;
  share.last_token = end_of_chain(p, index, span, spans);
  if (share.last_token - share.first_token > p.tokens_max) return;

  const DeltaStrip strip = {p.rows, p.columns - first_column, p.columns,
                            p.state_is_aligned && p.rows == Shared<T, V, PerChannel>::rows};
  const bool works = strip.columns > 0;
  const std::int64_t at = p.state_of(share.head) + first_column;
  const std::int64_t from = span.read_slot;
  DeltaTile<V> tile;
  tile.load(from < 0 || !works ? nullptr : p.state + from * p.state_stride + at, strip);
  copy_tokens(p, share, share.first_token, 0, shared);

  const bool has_column = delta_own_column() < strip.columns;
  const bool writes = has_column && delta_row_lane() >= delta_lane_columns;
  const std::int64_t own = static_cast<std::int64_t>(first_column) + delta_own_column();
  const T* v = p.x + share.first_token * p.x_stride + p.v_of(share.head) + own;
  T* y = p.y + share.first_token * p.y_stride + static_cast<std::int64_t>(share.head) * p.columns +
         own;
  float value = has_column ? to_float(*v) : 0.0F;
  int stage = 0;
  for (int token = share.first_token; token < share.last_token; token += stage_tokens) {
    cp_async_wait<0>();
    sync_block();  // the copies have arrived for all, and the keys before them are no longer needed
    if (token + stage_tokens < share.last_token) {
      copy_tokens(p, share, token + stage_tokens, 1 - stage, shared);
    }
    make_tokens(p, share, token, stage, shared);
    sync_block();
    stage = 1 - stage;
    if (!works) continue;
    const int left = share.last_token - token;
    const int count = left < stage_tokens ? left : stage_tokens;
    for (int t = 0;;) {
      const int stop = span.last - token < count ? span.last - token : count;
#pragma unroll 1
      for (; t < stop; ++t, y += p.y_stride) {
        v += p.x_stride;
        const float next = has_column && t + 1 < left ? to_float(*v) : 0.0F;
        const DeltaGates gates = {shared.beta[t], PerChannel ? 1.0F : shared.keep[t],
                                  shared.product[t]};
        const float* keeps = nullptr;
        if constexpr (PerChannel) keeps = &shared.keeps[t][0];
        const float answer = tile.template advance<S, PerChannel>(&shared.k[t][0], &shared.q[t][0],
                                                                  gates, value, keeps);
        if (writes) *y = rounded<T>(answer);
        value = next;
      }
      if (token + stop < span.last) break;
      if (span.write_slot >= 0) {
        tile.store(p.state + span.write_slot * p.state_stride + at, strip);
      }
      if (!span.next_continues) break;
      span = span_at(p, ++index, spans);
    }
  }
}

template <typename T, typename S>
void run(Stream& stream, const DeltaRule& op, int tokens_max) {
  Params<T, S> params = {delta_rule_params<T, S>(op), false, false, false, tokens_max};
  params.x_is_aligned =
      is_vector_aligned(params.x, params.x_stride) && params.rows % vector_size<T> == 0;
  params.a_is_aligned =
      is_vector_aligned(params.a, params.a_stride) && params.rows % vector_size<T> == 0;
  params.state_is_aligned = has_fours(params.state, params.state_stride, params.columns);
  const std::int64_t tokens = op.x.dim(0), spans = op.read_slot.dim(0);
  const auto blocks = [&](int warps) {
    return params.heads * pieces(params.columns, warps * delta_columns);
  };
  // A few short spans would leave most of the card idle in large blocks.
  const bool is_small = tokens <= 4 * spans && blocks(block_warps_max) * spans < blocks_full;
  const int warps = is_small ? 1 : block_warps_max;
  visit_delta_rows(op, [&](auto lane_rows, auto per_channel) {
    launch(stream,
           {.blocks = dim3(blocks(warps), static_cast<unsigned>(spans)),
            .threads = static_cast<unsigned>(warps * warp_size),
            .shared_bytes = sizeof(Shared<T, lane_rows, per_channel>)},
           delta_rule_scan_kernel<T, S, lane_rows, per_channel>, params);
  });
}

}  // namespace

void delta_rule_scan(Stream& stream, const DeltaRule& op, int tokens_max) {
  if (op.x.dim(0) == 0 || op.read_slot.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op, tokens_max); });
  });
}

}  // namespace hyb::kernels::cuda
