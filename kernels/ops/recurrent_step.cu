#include <cmath>
#include <cstdint>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/delta_rule.cuh"
#include "kernels/ops/ssd.cuh"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

/// The causal convolution of one token, channel by channel, as a part of a larger kernel: the bits
/// of causal_conv.
namespace hyb::kernels::cuda {

inline constexpr int taps_max = static_cast<int>(conv_width_max);

/// Holds what the parameters of a step's kernel have besides those of its recurrence.
template <typename T>
struct ConvParams {
  const float *conv_weight, *conv_bias;  ///< conv_bias null: none
  T* windows;
  unsigned* semaphores;
  std::int64_t window_stride;
  int taps;
  bool state_is_aligned;
};

/// One channel of the convolution, in a thread.
template <typename T>
struct ConvChannel {
  std::int64_t index;  ///< -1: none
  float weight[taps_max], bias;
  T window[taps_max - 1], x;  ///< what is left of the token, oldest first, and its own input

  __device__ __forceinline__ T tap(int j, int taps) const {
    return j + 1 < taps_max && j + 1 < taps ? window[j] : x;
  }
};

template <typename Params, typename T>
__device__ __forceinline__ void load_weights(const Params& p, ConvChannel<T>& channel) {
  if (channel.index < 0) return;
  channel.bias = p.conv_bias == nullptr ? 0.0F : p.conv_bias[channel.index];
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    channel.weight[j] = j < p.taps ? p.conv_weight[channel.index * p.taps + j] : 0.0F;
  }
}

template <typename Params, typename T>
__device__ __forceinline__ void load_taps(const Params& p, int token, std::int64_t slot,
                                          ConvChannel<T>& channel) {
  if (channel.index < 0) return;
  const T* const window =
      p.windows + (slot < 0 ? 0 : slot) * p.window_stride + channel.index * (p.taps - 1);
  channel.x = p.x[token * p.x_stride + channel.index];
#pragma unroll
  for (int j = 0; j + 1 < taps_max; ++j) {
    channel.window[j] = j + 1 < p.taps && slot >= 0 ? window[j] : T{};
  }
}

/// Works as causal_conv: from the bias upwards, one rounding per tap.
template <typename Params, typename T>
__device__ __forceinline__ float convolve(const Params& p, const ConvChannel<T>& channel) {
  if (channel.index < 0) return 0.0F;
  float sum = channel.bias;
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    if (j < p.taps) sum = fmaf(channel.weight[j], to_float(channel.tap(j, p.taps)), sum);
  }
  return to_float(rounded<T>(silu(sum)));
}

/// Moves the channel's window on by one token.
template <typename Params, typename T>
__device__ __forceinline__ void shift_window(const Params& p, std::int64_t slot,
                                             const ConvChannel<T>& channel) {
  T* const to = p.windows + slot * p.window_stride + channel.index * (p.taps - 1);
#pragma unroll
  for (int j = 0; j + 1 < taps_max; ++j) {
    if (j + 1 < p.taps) to[j] = channel.tap(j + 1, p.taps);
  }
}

namespace {

constexpr int block_warps = 4;
constexpr int block_threads = block_warps * warp_size;
constexpr int block_columns = block_warps * delta_columns;

template <typename T, typename S>
struct DeltaParams : DeltaRuleParams<T, S>, ConvParams<T> {};

/// Holds what a block convolves: q, k, and v of its columns; a thread every block_threads-th of
/// them, and of the v's in its last turn.
template <int V>
struct alignas(16) DeltaShared {
  static constexpr int rows = V * delta_row_lanes;
  static constexpr int k = rows, v = 2 * rows;
  static constexpr int turns = (v + block_columns + block_threads - 1) / block_threads;
  static_assert(v >= (turns - 1) * block_threads);

  SharedArray<float, rows> query, key;  ///< normalized
  SharedArray<float, turns * block_threads> convolved;
  SharedArray<float, 1> product;
  SharedArray<int, 1> is_last;
};

/// Holds what the token leaves of each row, where decays are per channel.
template <int V>
struct alignas(16) DeltaKeeps {
  SharedArray<float, DeltaShared<V>::rows> of_row;
};

/// Columns of a head that a block owns.
struct DeltaShare {
  int head, first_column, columns;
};

template <typename T, typename S>
__device__ __forceinline__ DeltaShare share_of_block(const DeltaParams<T, S>& p) {
  const int parts = (p.columns + block_columns - 1) / block_columns;
  const int first = static_cast<int>(blockIdx.x) % parts * block_columns;
  return {static_cast<int>(blockIdx.x) / parts, first,
          p.columns - first < block_columns ? p.columns - first : block_columns};
}

template <int V, typename T, typename S>
__device__ __forceinline__ std::int64_t channel_at(const DeltaParams<T, S>& p,
                                                   const DeltaShare& share, int place) {
  const int i = place - DeltaShared<V>::v;
  if (i >= 0) return i < share.columns ? p.v_of(share.head) + share.first_column + i : -1;
  const int row = place % DeltaShared<V>::rows;
  if (row >= p.rows) return -1;
  return p.q_of(share.head) + (place < DeltaShared<V>::k ? 0 : p.k_distance()) + row;
}

/// One token's step for the warp's columns, whose state is in `tile`.
template <bool PerChannel, int V, typename T, typename S>
__device__ __forceinline__ void answer(const DeltaParams<T, S>& p, const DeltaShare& share,
                                       int token, const DeltaShared<V>& shared,
                                       const DeltaGates& gates, DeltaTile<V>& tile) {
  const int column = static_cast<int>(threadIdx.x) / warp_size * delta_columns + delta_own_column();
  const float value = shared.convolved[DeltaShared<V>::v + column];
  const float* keeps = nullptr;
  if constexpr (PerChannel) keeps = &shared_object<DeltaKeeps<V>>().of_row[0];
  const float own =
      tile.template advance<S, PerChannel>(&shared.key[0], &shared.query[0], gates, value, keeps);
  if (delta_row_lane() < delta_lane_columns || column >= share.columns) return;
  p.y[token * p.y_stride + static_cast<std::int64_t>(share.head) * p.columns + share.first_column +
      column] = rounded<T>(own);
}

/// grid (heads * column parts, R): a block owns some columns of one head. All it reads is loaded
/// before any of it is used. Every block of a token makes the token's q and k for itself, from
/// windows that the block which draws the last semaphore moves on: it alone knows that all have
/// read them. The bound of delta_rule's scan holds.
template <typename T, typename S, int V, bool PerChannel>
__global__ void __launch_bounds__(block_threads) delta_step_kernel(const DeltaParams<T, S> p) {
  auto& shared = shared_object<DeltaShared<V>>();
  constexpr int turns = DeltaShared<V>::turns;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int token = static_cast<int>(blockIdx.y);
  const DeltaShare share = share_of_block(p);
  let_next_kernel_start();
  ConvChannel<T> channels[turns];
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    channels[i].index = channel_at<V>(p, share, i * block_threads + thread);
    load_weights(p, channels[i]);
  }
  // Decays, of warp 0's rows or of the head.
  constexpr int decays = PerChannel ? DeltaShared<V>::rows / warp_size : 1;
  const int first_decay = PerChannel ? share.head * p.rows + thread : share.head;
  const auto has_decay = [&](int i) {
    return !PerChannel || (warp == 0 && i * warp_size + thread < p.rows);
  };
  const float rate = p.rate[share.head];
  float bias[decays];
  T a[decays];
#pragma unroll
  for (int i = 0; i < decays; ++i) {
    bias[i] = has_decay(i) ? p.dt_bias[first_decay + i * warp_size] : 0.0F;
  }
  wait_for_previous_kernel();
  const std::int64_t from = p.read_slot[token], to = p.write_slot[token];
  if (to < 0) return;

  const int columns = share.columns - warp * delta_columns;  // from the warp's first on
  const DeltaStrip strip = {p.rows, columns, p.columns,
                            p.state_is_aligned && p.rows == DeltaShared<V>::rows};
  const std::int64_t at = p.state_of(share.head) + share.first_column + warp * delta_columns;
  DeltaTile<V> tile;
  tile.load(from < 0 || columns <= 0 ? nullptr : p.state + from * p.state_stride + at, strip);
  const T b = p.b[token * p.b_stride + share.head];
#pragma unroll
  for (int i = 0; i < decays; ++i) {
    a[i] = has_decay(i) ? p.a[token * p.a_stride + first_decay + i * warp_size] : T{};
  }
#pragma unroll
  for (int i = 0; i < turns; ++i) load_taps(p, token, from, channels[i]);
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    shared.convolved[i * block_threads + thread] = convolve(p, channels[i]);
  }
  sync_block();
  unsigned semaphore = 0;  // drawn before this thread writes: its fence has little to wait for
  if (thread == 0) {
    fence();
    semaphore = atomic_add(&p.semaphores[token], 1U);
  }
  const int last_place = (turns - 1) * block_threads + thread;
  if (last_place >= DeltaShared<V>::v && channels[turns - 1].index >= 0) {
    shift_window(p, to, channels[turns - 1]);
  }
  if (warp == 0) {
    const auto keep_of = [&](int i, int row) {
      if constexpr (PerChannel) {
        const float keep = expf(log_keep(to_float(a[i]), bias[i], rate, p.decay_floor));
        shared_object<DeltaKeeps<V>>().of_row[row] = row < p.rows ? keep : 0.0F;
        return keep;
      } else {
        return 1.0F;
      }
    };
    const float product =
        delta_normalize<V>(&shared.convolved[0], &shared.convolved[DeltaShared<V>::k], p.rows,
                           p.q_scale, shared.query, shared.key, keep_of);
    if (thread == 0) shared.product[0] = product;
  }
  DeltaGates gates = {write_strength(to_float(b), p.beta_scale),
                      PerChannel ? 1.0F : expf(log_keep(to_float(a[0]), bias[0], rate)), 0.0F};
  sync_block();
  gates.product = shared.product[0];
  if (columns > 0) {
    answer<PerChannel>(p, share, token, shared, gates, tile);
    tile.store(p.state + to * p.state_stride + at, strip);
  }
  if (thread == 0) shared.is_last[0] = semaphore + 1 == gridDim.x ? 1 : 0;
  sync_block();
  if (shared.is_last[0] == 0) return;
  fence();
  for (std::int64_t i = thread; i < 2 * p.k_distance(); i += block_threads) {
    ConvChannel<T> channel;
    channel.index = i;
    load_taps(p, token, from, channel);
    shift_window(p, to, channel);
  }
  if (thread == 0) p.semaphores[token] = 0;
}

template <typename T, typename Step>
ConvParams<T> conv_params(const Step& op) {
  const Tensor& state = op.recurrence.state;
  return {.conv_weight = op.convolution.weight.template as<float>(),
          .conv_bias = op.convolution.bias.template as<float>(),
          .windows = op.convolution.windows.template as<T>(),
          .semaphores = op.semaphores.template as<unsigned>(),
          .window_stride = op.convolution.windows.row_stride,
          .taps = static_cast<int>(op.convolution.weight.dim(1)),
          .state_is_aligned = has_fours(state.data, state.row_stride, state.dim(3))};
}

/// The recurrence, of what is not convolved yet.
template <typename Recurrence>
Recurrence unconvolved(const RecurrentStep<Recurrence>& op) {
  Recurrence recurrence = op.recurrence;
  recurrence.x = op.convolution.x;
  return recurrence;
}

template <typename T, typename S>
void run(Stream& stream, const DeltaStep& op) {
  const DeltaParams<T, S> params = {delta_rule_params<T, S>(unconvolved(op)), conv_params<T>(op)};
  visit_delta_rows(op.recurrence, [&](auto lane_rows, auto per_channel) {
    launch(
        stream,
        {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.columns, block_columns),
                        static_cast<unsigned>(op.convolution.x.dim(0))),
         .threads = block_threads},
        delta_step_kernel<T, S, lane_rows, per_channel>, params);
  });
}

constexpr int block_rows = block_warps * warp_rows;  ///< of one head's state

template <typename T, typename S>
struct MambaParams : SsdParams<T, S>, ConvParams<T> {};

/// Holds what a block convolves: B, C (zeros past their columns), the inputs of its rows; a thread
/// every block_threads-th of them, and of the rows' in its last turn.
template <int V>
struct alignas(16) MambaShared {
  static constexpr int b = 0, c = V * warp_size, x = 2 * V * warp_size;
  static constexpr int turns = (x + block_rows + block_threads - 1) / block_threads;
  static_assert(x >= (turns - 1) * block_threads);

  SharedArray<float, turns * block_threads> convolved;
  SharedArray<int, 1> is_last;
};

/// Rows of a head that a block owns, and the place of its channels.
struct MambaShare {
  int head, rows;
  std::int64_t x, b, c;
};

template <typename T, typename S>
__device__ __forceinline__ MambaShare share_of_block(const MambaParams<T, S>& p) {
  const int row_pieces = (p.rows + block_rows - 1) / block_rows;
  const int head = static_cast<int>(blockIdx.x) / row_pieces;
  const int first = static_cast<int>(blockIdx.x) % row_pieces * block_rows;
  return {head, p.rows - first < block_rows ? p.rows - first : block_rows,
          static_cast<std::int64_t>(head) * p.rows + first, p.b_of(head), p.c_of(head)};
}

template <int V>
__device__ __forceinline__ std::int64_t channel_at(const MambaShare& share, int columns,
                                                   int place) {
  const int n = place % (V * warp_size), i = place - MambaShared<V>::x;
  if (i >= 0) return i < share.rows ? share.x + i : -1;
  if (n >= columns) return -1;
  return (place < MambaShared<V>::c ? share.b : share.c) + n;
}

/// grid (heads * row pieces, R): a block owns some rows of one head. All it reads is loaded
/// before any of it is used. Every block of a token makes the token's B and C for itself, from
/// windows that the block which draws the last semaphore moves on: it alone knows that all have
/// read them. Sums over columns in f32 in a fixed order: y is within (N + 16) * 2^-22 * sum_n
/// |S*C|, not counting the roundings of the contract.
template <typename T, typename S, int V>
__global__ void __launch_bounds__(block_threads, 4) mamba_step_kernel(const MambaParams<T, S> p) {
  auto& shared = shared_object<MambaShared<V>>();
  constexpr int turns = MambaShared<V>::turns;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int token = static_cast<int>(blockIdx.y);
  const MambaShare share = share_of_block(p);
  let_next_kernel_start();
  ConvChannel<T> channels[turns];
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    channels[i].index = channel_at<V>(share, p.columns, i * block_threads + thread);
    load_weights(p, channels[i]);
  }
  const float rate = p.rate[share.head], d = p.d[share.head], bias = p.dt_bias[share.head];
  wait_for_previous_kernel();
  const std::int64_t from = p.read_slot[token], to = p.write_slot[token];
  if (to < 0) return;

  const StateRows rows = {share.rows - warp * warp_rows, p.columns, p.state_is_aligned};
  const std::int64_t at = (share.x + warp * warp_rows) * p.columns;
  float state[warp_rows][V];
  load_rows(from < 0 ? nullptr : p.state + from * p.state_stride + at, rows, state);
  const T raw = p.dt[token * p.dt_stride + share.head];
#pragma unroll
  for (int i = 0; i < turns; ++i) load_taps(p, token, from, channels[i]);
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    shared.convolved[i * block_threads + thread] = convolve(p, channels[i]);
  }
  sync_block();
  unsigned semaphore = 0;  // drawn before this thread writes: its fence has little to wait for
  if (thread == 0) {
    fence();
    semaphore = atomic_add(&p.semaphores[token], 1U);
  }
  const int last_place = (turns - 1) * block_threads + thread;
  if (last_place >= MambaShared<V>::x && channels[turns - 1].index >= 0) {
    shift_window(p, to, channels[turns - 1]);
  }

  if (rows.rows > 0) {
    const float dt = step_size(to_float(raw) + bias, p.dt_min, p.dt_max),
                decay = step_decay(dt, rate);
    const int x = MambaShared<V>::x + warp * warp_rows;
    float b_values[V], c_values[V], input[warp_rows];
    load_columns<V>(&shared.convolved[MambaShared<V>::b], b_values);
    load_columns<V>(&shared.convolved[MambaShared<V>::c], c_values);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) input[r] = dt * shared.convolved[x + r];
    const float sum = advance<S, V>(state, decay, input, b_values, c_values);
    store_rows(p.state + to * p.state_stride + at, rows, state);
    const int row = thread % warp_size / 8;
    if (thread % 8 == 0 && row < rows.rows) {
      T* const y = p.y + token * p.y_stride + share.x + warp * warp_rows;
      y[row] = rounded<T>(fmaf(d, shared.convolved[x + row], sum));
    }
  }

  if (thread == 0) shared.is_last[0] = semaphore + 1 == gridDim.x ? 1 : 0;
  sync_block();
  if (shared.is_last[0] == 0) return;
  fence();
  const std::int64_t inner = static_cast<std::int64_t>(p.heads) * p.rows;
  for (std::int64_t i = thread; i < 2 * static_cast<std::int64_t>(p.groups) * p.columns;
       i += block_threads) {
    ConvChannel<T> channel;
    channel.index = inner + i;
    load_taps(p, token, from, channel);
    shift_window(p, to, channel);
  }
  if (thread == 0) p.semaphores[token] = 0;
}

template <typename T, typename S>
void run(Stream& stream, const MambaStep& op) {
  const MambaParams<T, S> params = {ssd_params<T, S>(unconvolved(op)), conv_params<T>(op)};
  visit_columns(params.columns, [&](auto lane_columns) {
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.rows, block_rows),
                           static_cast<unsigned>(op.convolution.x.dim(0))),
            .threads = block_threads},
           mamba_step_kernel<T, S, lane_columns>, params);
  });
}

/// run<T, S>(stream, op) with the types of activations and states.
template <typename Step>
void run_step(Stream& stream, const Step& op) {
  if (op.convolution.x.dim(0) == 0) return;
  visit_float(op.convolution.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.recurrence.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op); });
  });
}

}  // namespace

void delta_step(Stream& stream, const DeltaStep& op) { run_step(stream, op); }
void mamba_step(Stream& stream, const MambaStep& op) { run_step(stream, op); }

}  // namespace hyb::kernels::cuda
