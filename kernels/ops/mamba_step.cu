#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/ssd.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_rows = 16;  ///< of one head's state; 96 to 512 blocks for the models' shapes
constexpr int block_warps = 4;
constexpr int block_threads = block_warps * warp_size;

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
  float dt_min, dt_max;
};

struct Shared {
  SharedArray<float, block_rows> x;
  SharedArray<float, static_cast<int>(ssd_columns_max)> b, c;
  SharedArray<int, 1> is_last;
};

/// Tap j of a channel: what the window holds, oldest first, then the token's own input.
template <typename T, typename S>
__device__ __forceinline__ float tap(const Params<T, S>& p, int row, std::int64_t channel, int j) {
  const int slot = p.read_slot[row];
  if (j == p.taps - 1) return to_float(p.x[row * p.x_stride + channel]);
  if (slot < 0) return 0.0F;
  return to_float(p.windows[slot * p.window_stride + channel * (p.taps - 1) + j]);
}

template <typename T, typename S>
__device__ __forceinline__ float convolve(const Params<T, S>& p, int row, std::int64_t channel) {
  float sum = p.conv_bias == nullptr ? 0.0F : p.conv_bias[channel];
  for (int j = 0; j < p.taps; ++j) {
    sum += p.conv_weight[channel * p.taps + j] * tap(p, row, channel, j);
  }
  return to_float(rounded<T>(sum / (1.0F + expf(-sum))));
}

/// Moves a channel's window on by one token. Taps are read before they are written over.
template <typename T, typename S>
__device__ __forceinline__ void shift_window(const Params<T, S>& p, int row, std::int64_t channel) {
  T* const to = p.windows + p.write_slot[row] * p.window_stride + channel * (p.taps - 1);
  for (int j = 0; j + 1 < p.taps; ++j) to[j] = rounded<T>(tap(p, row, channel, j + 1));
}

__device__ __forceinline__ float softplus(float value) {
  return value > 20.0F ? value : log1pf(expf(value));
}

/// One row of a head's state, by a warp: lane l owns columns l, l+32, ...
template <typename T, typename S>
__device__ __forceinline__ float step_row(const Params<T, S>& p, const Shared& shared, int token,
                                          std::int64_t at, float decay, float input) {
  const int slot = p.read_slot[token];
  const S* const from = p.state + (slot < 0 ? 0 : slot) * p.state_stride + at;
  S* const to = p.state + p.write_slot[token] * p.state_stride + at;
  float sum = 0.0F;
  for (int n = static_cast<int>(threadIdx.x) % warp_size; n < p.columns; n += warp_size) {
    const float old = slot < 0 ? 0.0F : to_float(from[n]);
    const S next = rounded<S>(decay * old + input * shared.b[n]);
    to[n] = next;
    sum += to_float(next) * shared.c[n];
  }
  return warp_sum(sum);
}

/// grid (heads * row pieces, R): a block owns some rows of one head. Every block of a token makes
/// the token's B and C for itself, from windows that the block which draws the last ticket moves
/// on: it alone knows that all have read them. Sums over columns in f32 in a fixed order: y is
/// within (N + 16) * 2^-22 * sum_n |S*C|, besides the roundings of the contract.
template <typename T, typename S>
__global__ void __launch_bounds__(block_threads) mamba_step_kernel(const Params<T, S> p) {
  Shared& shared = shared_object<Shared>();
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
  if (p.write_slot[token] < 0) return;

  if (thread < count) {
    shared.x[thread] = convolve(p, token, own + thread);
    shift_window(p, token, own + thread);
  }
  for (int n = thread; n < p.columns; n += block_threads) {
    shared.b[n] = convolve(p, token, b + n);
    shared.c[n] = convolve(p, token, c + n);
  }
  sync_block();
  if (thread == 0) {
    fence();
    shared.is_last[0] = atomic_add(&p.tickets[token], 1U) + 1 == gridDim.x ? 1 : 0;
    fence();
  }

  const float raw = to_float(p.dt[token * p.dt_stride + head]) + p.dt_bias[head];
  const float dt = fminf(fmaxf(softplus(raw), p.dt_min), p.dt_max);
  const float decay = expf(dt * -expf(p.a_log[head]));
  for (int i = warp; i < count; i += block_warps) {
    const float x = shared.x[i];
    const float sum = step_row(p, shared, token, (own + i) * p.columns, decay, dt * x);
    if (thread % warp_size == 0) {
      p.y[token * p.y_stride + own + i] = rounded<T>(sum + p.d[head] * x);
    }
  }

  sync_block();
  if (shared.is_last[0] == 0) return;
  for (std::int64_t i = thread; i < 2 * static_cast<std::int64_t>(p.groups) * p.columns;
       i += block_threads) {
    shift_window(p, token, inner + i);
  }
  if (thread == 0) p.tickets[token] = 0;
}

template <typename T, typename S>
void run(Stream& stream, const MambaStep& op) {
  const auto heads = static_cast<int>(op.state.dim(1));
  const auto rows = static_cast<int>(op.state.dim(2));
  const Params<T, S> params = {.x = op.x.as<T>(),
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
                               .dt_min = op.dt_min,
                               .dt_max = op.dt_max};
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(heads) * pieces(rows, block_rows),
                         static_cast<unsigned>(op.x.dim(0))),
          .threads = block_threads,
          .starts_early = true},
         mamba_step_kernel<T, S>, params);
}

}  // namespace

void mamba_step(Stream& stream, const MambaStep& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
