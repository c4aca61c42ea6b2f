#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/conv_channel.cuh"
#include "kernels/ops/delta_rule_params.cuh"
#include "kernels/ops/delta_rule_tile.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr int block_threads = block_warps * warp_size;
constexpr int block_columns = block_warps * delta_columns;

template <typename T, typename S>
struct Params : DeltaRuleParams<T, S> {
  const float *conv_weight, *conv_bias;  // conv_bias null: none
  T* windows;
  unsigned* tickets;
  std::int64_t window_stride;
  int taps;
  bool state_is_aligned;
};

/// What a block convolves: q, k, and v of its columns; a thread every block_threads-th of them, and
/// of the v's in its last turn.
template <int V>
struct alignas(16) Shared {
  static constexpr int rows = V * delta_row_lanes;
  static constexpr int k = rows, v = 2 * rows;
  static constexpr int turns = (v + block_columns + block_threads - 1) / block_threads;
  static_assert(v >= (turns - 1) * block_threads);

  SharedArray<float, rows> query, key;  ///< normalised
  SharedArray<float, turns * block_threads> convolved;
  SharedArray<float, 1> product;
  SharedArray<int, 1> is_last;
};

/// Which columns of which head a block owns.
struct Share {
  int head, first_column, columns;
};

template <typename T, typename S>
__device__ __forceinline__ Share share_of_block(const Params<T, S>& p) {
  const int parts = (p.columns + block_columns - 1) / block_columns;
  const int first = static_cast<int>(blockIdx.x) % parts * block_columns;
  return {static_cast<int>(blockIdx.x) / parts, first,
          p.columns - first < block_columns ? p.columns - first : block_columns};
}

template <int V, typename T, typename S>
__device__ __forceinline__ std::int64_t channel_at(const Params<T, S>& p, const Share& share,
                                                   int place) {
  const int i = place - Shared<V>::v;
  if (i >= 0) return i < share.columns ? p.v_of(share.head) + share.first_column + i : -1;
  const int row = place % Shared<V>::rows;
  if (row >= p.rows) return -1;
  return p.q_of(share.head) + (place < Shared<V>::k ? 0 : p.k_distance()) + row;
}

/// One token's step for the warp's columns, whose state is in `tile`.
template <int V, typename T, typename S>
__device__ __forceinline__ void answer(const Params<T, S>& p, const Share& share, int token,
                                       const Shared<V>& shared, const DeltaGates& gates,
                                       DeltaTile<V>& tile) {
  const int column = static_cast<int>(threadIdx.x) / warp_size * delta_columns + delta_own_column();
  const float value = shared.convolved[Shared<V>::v + column];
  const float own = tile.template advance<S>(&shared.key[0], &shared.query[0], gates, value);
  if (delta_row_lane() < delta_lane_columns || column >= share.columns) return;
  p.y[token * p.y_stride + static_cast<std::int64_t>(share.head) * p.columns + share.first_column +
      column] = rounded<T>(own);
}

/// grid (heads * column parts, R): a block owns some columns of one head. All it reads is asked for
/// before any of it is used. Every block of a token makes the token's q and k for itself, from
/// windows that the block which draws the last ticket moves on: it alone knows that all have read
/// them. The bound of delta_rule's scan holds.
template <typename T, typename S, int V>
__global__ void __launch_bounds__(block_threads) delta_step_kernel(const Params<T, S> p) {
  auto& shared = shared_object<Shared<V>>();
  constexpr int turns = Shared<V>::turns;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int token = static_cast<int>(blockIdx.y);
  const Share share = share_of_block(p);
  let_next_kernel_start();
  ConvChannel<T> channels[turns];
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    channels[i].index = channel_at<V>(p, share, i * block_threads + thread);
    load_weights(p, channels[i]);
  }
  const float a_log = p.a_log[share.head], bias = p.dt_bias[share.head];
  wait_for_previous_kernel();
  const std::int64_t from = p.read_slot[token], to = p.write_slot[token];
  if (to < 0) return;

  const int columns = share.columns - warp * delta_columns;  // from the warp's first on
  const DeltaStrip strip = {p.rows, columns, p.columns,
                            p.state_is_aligned && p.rows == Shared<V>::rows};
  const std::int64_t at = p.state_of(share.head) + share.first_column + warp * delta_columns;
  DeltaTile<V> tile;
  tile.load(from < 0 || columns <= 0 ? nullptr : p.state + from * p.state_stride + at, strip);
  const T a = p.a[token * p.a_stride + share.head], b = p.b[token * p.b_stride + share.head];
#pragma unroll
  for (int i = 0; i < turns; ++i) load_taps(p, token, from, channels[i]);
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    shared.convolved[i * block_threads + thread] = convolve(p, channels[i]);
  }
  sync_block();
  unsigned ticket = 0;  // drawn before this thread writes: its fence has little to wait for
  if (thread == 0) {
    fence();
    ticket = atomic_add(&p.tickets[token], 1U);
  }
  const int last_place = (turns - 1) * block_threads + thread;
  if (last_place >= Shared<V>::v && channels[turns - 1].index >= 0) {
    shift_window(p, to, channels[turns - 1]);
  }
  if (warp == 0) {
    const float product = delta_normalise<V>(&shared.convolved[0], &shared.convolved[Shared<V>::k],
                                             p.rows, p.q_scale, shared.query, shared.key);
    if (thread == 0) shared.product[0] = product;
  }
  DeltaGates gates = {write_strength(to_float(b)), expf(log_keep(to_float(a), bias, a_log)), 0.0F};
  sync_block();
  gates.product = shared.product[0];
  if (columns > 0) {
    answer(p, share, token, shared, gates, tile);
    tile.store(p.state + to * p.state_stride + at, strip);
  }
  if (thread == 0) shared.is_last[0] = ticket + 1 == gridDim.x ? 1 : 0;
  sync_block();
  if (shared.is_last[0] == 0) return;
  fence();
  for (std::int64_t i = thread; i < 2 * p.k_distance(); i += block_threads) {
    ConvChannel<T> channel;
    channel.index = i;
    load_taps(p, token, from, channel);
    shift_window(p, to, channel);
  }
  if (thread == 0) p.tickets[token] = 0;
}

template <typename T, typename S>
void run(Stream& stream, const DeltaStep& op) {
  Params<T, S> params;
  static_cast<DeltaRuleParams<T, S>&>(params) =
      delta_rule_params<T, S>({.x = op.x,
                               .b = op.b,
                               .a = op.a,
                               .a_log = op.a_log,
                               .dt_bias = op.dt_bias,
                               .state = op.state,
                               .span_begin = {},
                               .read_slot = op.read_slot,
                               .write_slot = op.write_slot,
                               .y = op.y,
                               .key_heads = op.key_heads});
  params.conv_weight = op.conv_weight.as<float>();
  params.conv_bias = op.conv_bias.as<float>();
  params.windows = op.windows.as<T>();
  params.tickets = op.tickets.as<unsigned>();
  params.window_stride = op.windows.row_stride;
  params.taps = static_cast<int>(op.conv_weight.dim(1));
  params.state_is_aligned = has_fours(params.state, params.state_stride, params.columns);
  visit_delta_rows(params.rows, [&](auto lane_rows) {
    launch(
        stream,
        {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.columns, block_columns),
                        static_cast<unsigned>(op.x.dim(0))),
         .threads = block_threads,
         .starts_early = true},
        delta_step_kernel<T, S, lane_rows>, params);
  });
}

}  // namespace

void delta_step(Stream& stream, const DeltaStep& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
