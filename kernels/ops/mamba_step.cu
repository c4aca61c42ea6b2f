#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/silu.h"
#include "kernels/cuda/vectors.h"
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

template <int V>
struct alignas(16) Shared {
  SharedArray<float, V * warp_size> b, c;  ///< zeros behind the columns
  SharedArray<float, block_rows> x;
  SharedArray<int, 1> is_last;
};

constexpr int taps_max = 4;

/// A channel's taps: what the window holds, oldest first, then the token's own input.
struct Taps {
  float values[taps_max];
};

template <typename T, typename S>
__device__ __forceinline__ Taps load_taps(const Params<T, S>& p, int row, std::int64_t channel) {
  const std::int64_t slot = p.read_slot[row];
  const T* const window =
      p.windows + (slot < 0 ? 0 : slot) * p.window_stride + channel * (p.taps - 1);
  const float x = to_float(p.x[row * p.x_stride + channel]);
  Taps taps;
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    taps.values[j] = j == p.taps - 1 ? x : 0.0F;
    if (j < p.taps - 1 && slot >= 0) taps.values[j] = to_float(window[j]);
  }
  return taps;
}

/// As causal_conv: from the bias upwards, one rounding per tap.
template <typename T, typename S>
__device__ __forceinline__ float convolve(const Params<T, S>& p, std::int64_t channel,
                                          const Taps& taps) {
  float sum = p.conv_bias == nullptr ? 0.0F : p.conv_bias[channel];
#pragma unroll
  for (int j = 0; j < taps_max; ++j) {
    if (j < p.taps) sum = fmaf(p.conv_weight[channel * p.taps + j], taps.values[j], sum);
  }
  return to_float(rounded<T>(silu(sum)));
}

/// Moves a channel's window on by one token.
template <typename T, typename S>
__device__ __forceinline__ void shift_window(const Params<T, S>& p, int row, std::int64_t channel,
                                             const Taps& taps) {
  const std::int64_t slot = p.write_slot[row];
  T* const to = p.windows + slot * p.window_stride + channel * (p.taps - 1);
#pragma unroll
  for (int j = 0; j + 1 < taps_max; ++j) {
    if (j + 1 < p.taps) to[j] = rounded<T>(taps.values[j + 1]);
  }
}

/// grid (heads * row pieces, R): a block owns some rows of one head, whose state is asked for
/// first. Every block of a token makes the token's B and C for itself, from windows that the block
/// which draws the last ticket moves on: it alone knows that all have read them. Sums over columns
/// in f32 in a fixed order: y is within (N + 16) * 2^-22 * sum_n |S*C|, besides the roundings of
/// the contract.
template <typename T, typename S, int V>
__global__ void __launch_bounds__(block_threads, 6) mamba_step_kernel(const Params<T, S> p) {
  auto& shared = shared_object<Shared<V>>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int token = static_cast<int>(blockIdx.y);
  const int row_pieces = (p.rows + block_rows - 1) / block_rows;
  const int head = static_cast<int>(blockIdx.x) / row_pieces;
  const int first = static_cast<int>(blockIdx.x) % row_pieces * block_rows;
  const int count = p.rows - first < block_rows ? p.rows - first : block_rows;
  const std::int64_t inner = static_cast<std::int64_t>(p.heads) * p.rows;
  const std::int64_t own = static_cast<std::int64_t>(head) * p.rows + first;
  const std::int64_t b = inner + head / (p.heads / p.groups) * p.columns;
  const std::int64_t c = b + static_cast<std::int64_t>(p.groups) * p.columns;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t from = p.read_slot[token], to = p.write_slot[token];
  if (to < 0) return;

  const StateRows rows = {count - warp * warp_rows, p.columns, p.state_is_aligned};
  const std::int64_t at = (own + warp * warp_rows) * p.columns;
  float state[warp_rows][V];
  load_rows(from < 0 ? nullptr : p.state + from * p.state_stride + at, rows, state);
  Taps taps = {};
  if (thread < count) {
    taps = load_taps(p, token, own + thread);
    shared.x[thread] = convolve(p, own + thread, taps);
  }
  for (int n = thread; n < V * warp_size; n += block_threads) {
    const bool is_there = n < p.columns;
    shared.b[n] = is_there ? convolve(p, b + n, load_taps(p, token, b + n)) : 0.0F;
    shared.c[n] = is_there ? convolve(p, c + n, load_taps(p, token, c + n)) : 0.0F;
  }
  sync_block();
  unsigned ticket =
      0;  // drawn before anything is written, so that the fence has nothing to wait for
  if (thread == 0) {
    fence();
    ticket = atomic_add(&p.tickets[token], 1U);
  }
  if (thread < count) shift_window(p, token, own + thread, taps);

  if (rows.rows > 0) {
    const float raw = to_float(p.dt[token * p.dt_stride + head]) + p.dt_bias[head];
    const float dt = step_size(raw, p.dt_min, p.dt_max), decay = step_decay(dt, p.a_log[head]);
    float b_values[V], c_values[V], input[warp_rows];
    load_columns<V>(&shared.b[0], b_values);
    load_columns<V>(&shared.c[0], c_values);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      input[r] = r < rows.rows ? dt * shared.x[warp * warp_rows + r] : 0.0F;
    }
    const float sum = advance<S, V>(state, decay, input, b_values, c_values);
    store_rows(p.state + to * p.state_stride + at, rows, state);
    const int row = thread % warp_size / 8;
    if (thread % 8 == 0 && row < rows.rows) {
      const int i = warp * warp_rows + row;
      p.y[token * p.y_stride + own + i] = rounded<T>(fmaf(p.d[head], shared.x[i], sum));
    }
  }

  if (thread == 0) shared.is_last[0] = ticket + 1 == gridDim.x ? 1 : 0;
  sync_block();
  if (shared.is_last[0] == 0) return;
  fence();
  for (std::int64_t i = thread; i < 2 * static_cast<std::int64_t>(p.groups) * p.columns;
       i += block_threads) {
    shift_window(p, token, inner + i, load_taps(p, token, inner + i));
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
      .state_is_aligned = has_vectors(op.state.as<S>(), op.state.row_stride, op.state.dim(3)),
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
