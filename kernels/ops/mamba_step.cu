#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/conv_channel.cuh"
#include "kernels/ops/mamba_row.cuh"
#include "kernels/ops/ssd_params.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr int block_threads = block_warps * warp_size;
constexpr int block_rows = block_warps * warp_rows;  ///< of one head's state

template <typename T, typename S>
struct Params {
  const T *x, *dt;
  const float *conv_weight, *conv_bias;  // conv_bias null: none
  T* windows;
  const float *a_log, *d, *dt_bias;
  S* state;
  const std::int32_t *read_slot, *write_slot;
  T* y;
  unsigned* tickets;
  std::int64_t x_stride, dt_stride, y_stride, window_stride, state_stride;
  int heads, rows, columns, groups, taps;
  bool state_is_aligned;
  float dt_min, dt_max;
};

/// What a block convolves: B, C (zeros behind their columns), the inputs of its rows; a thread
/// every block_threads-th of them, and of the rows' in its last turn.
template <int V>
struct alignas(16) Shared {
  static constexpr int b = 0, c = V * warp_size, x = 2 * V * warp_size;
  static constexpr int turns = (x + block_rows + block_threads - 1) / block_threads;
  static_assert(x >= (turns - 1) * block_threads);

  SharedArray<float, turns * block_threads> convolved;
  SharedArray<int, 1> is_last;
};

/// Which rows of which head a block owns, and where its channels are.
struct Share {
  int head, rows;
  std::int64_t x, b, c;
};

template <typename T, typename S>
__device__ __forceinline__ Share share_of_block(const Params<T, S>& p) {
  const int row_pieces = (p.rows + block_rows - 1) / block_rows;
  const int head = static_cast<int>(blockIdx.x) / row_pieces;
  const int first = static_cast<int>(blockIdx.x) % row_pieces * block_rows;
  const std::int64_t inner = static_cast<std::int64_t>(p.heads) * p.rows;
  const std::int64_t b = inner + head / (p.heads / p.groups) * p.columns;
  return {head, p.rows - first < block_rows ? p.rows - first : block_rows,
          static_cast<std::int64_t>(head) * p.rows + first, b,
          b + static_cast<std::int64_t>(p.groups) * p.columns};
}

template <int V>
__device__ __forceinline__ std::int64_t channel_at(const Share& share, int columns, int place) {
  const int n = place % (V * warp_size), i = place - Shared<V>::x;
  if (i >= 0) return i < share.rows ? share.x + i : -1;
  if (n >= columns) return -1;
  return (place < Shared<V>::c ? share.b : share.c) + n;
}

/// grid (heads * row pieces, R): a block owns some rows of one head. All it reads is asked for
/// before any of it is used. Every block of a token makes the token's B and C for itself, from
/// windows that the block which draws the last ticket moves on: it alone knows that all have read
/// them. Sums over columns in f32 in a fixed order: y is within (N + 16) * 2^-22 * sum_n |S*C|,
/// besides the roundings of the contract.
template <typename T, typename S, int V>
__global__ void __launch_bounds__(block_threads, 4) mamba_step_kernel(const Params<T, S> p) {
  auto& shared = shared_object<Shared<V>>();
  constexpr int turns = Shared<V>::turns;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int token = static_cast<int>(blockIdx.y);
  const Share share = share_of_block(p);
  let_next_kernel_start();
  ConvChannel<T> channels[turns];
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    channels[i].index = channel_at<V>(share, p.columns, i * block_threads + thread);
    load_weights(p, channels[i]);
  }
  const float a_log = p.a_log[share.head], d = p.d[share.head], bias = p.dt_bias[share.head];
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
  unsigned ticket = 0;  // drawn before this thread writes: its fence has little to wait for
  if (thread == 0) {
    fence();
    ticket = atomic_add(&p.tickets[token], 1U);
  }
  const int last_place = (turns - 1) * block_threads + thread;
  if (last_place >= Shared<V>::x && channels[turns - 1].index >= 0) {
    shift_window(p, to, channels[turns - 1]);
  }

  if (rows.rows > 0) {
    const float dt = step_size(to_float(raw) + bias, p.dt_min, p.dt_max),
                decay = step_decay(dt, a_log);
    const int x = Shared<V>::x + warp * warp_rows;
    float b_values[V], c_values[V], input[warp_rows];
    load_columns<V>(&shared.convolved[Shared<V>::b], b_values);
    load_columns<V>(&shared.convolved[Shared<V>::c], c_values);
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

  if (thread == 0) shared.is_last[0] = ticket + 1 == gridDim.x ? 1 : 0;
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
  if (thread == 0) p.tickets[token] = 0;
}

template <typename T, typename S>
void run(Stream& stream, const MambaStep& op) {
  const auto heads = static_cast<int>(op.state.dim(1));
  const auto rows = static_cast<int>(op.state.dim(2));
  const Params<T, S> params = {
      .x = op.x.as<T>(),
      .dt = op.dt.as<T>(),
      .conv_weight = op.conv_weight.as<float>(),
      .conv_bias = op.conv_bias.as<float>(),
      .windows = op.windows.as<T>(),
      .a_log = op.a_log.as<float>(),
      .d = op.d.as<float>(),
      .dt_bias = op.dt_bias.as<float>(),
      .state = op.state.as<S>(),
      .read_slot = op.read_slot.as<std::int32_t>(),
      .write_slot = op.write_slot.as<std::int32_t>(),
      .y = op.y.as<T>(),
      .tickets = op.tickets.as<unsigned>(),
      .x_stride = op.x.row_stride,
      .dt_stride = op.dt.row_stride,
      .y_stride = op.y.row_stride,
      .window_stride = op.windows.row_stride,
      .state_stride = op.state.row_stride,
      .heads = heads,
      .rows = rows,
      .columns = static_cast<int>(op.state.dim(3)),
      .groups = static_cast<int>(op.groups),
      .taps = static_cast<int>(op.conv_weight.dim(1)),
      .state_is_aligned = has_fours(op.state.as<S>(), op.state.row_stride, op.state.dim(3)),
      .dt_min = op.dt_min,
      .dt_max = op.dt_max};
  visit_columns(params.columns, [&](auto lane_columns) {
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(heads) * pieces(rows, block_rows),
                           static_cast<unsigned>(op.x.dim(0))),
            .threads = block_threads,
            .starts_early = true},
           mamba_step_kernel<T, S, lane_columns>, params);
  });
}

}  // namespace

void mamba_step(Stream& stream, const MambaStep& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
