#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 128;
constexpr int group_tokens = 4;  ///< whose sums a channel's lanes make together

template <typename T, typename S>
struct Params : RecurrenceParams<T, S> {
  const T *dt, *b, *c;
  const float* d;
  std::int64_t dt_stride, b_stride, c_stride;
  bool has_fours;  ///< rows of rate and state are whole vectors
};

/// `Lanes` lanes have a channel, V neighbouring columns each.
template <int Lanes, int V>
struct Shape {
  static constexpr int lanes = Lanes, lane_columns = V;
  static constexpr int columns = Lanes * V, channels = block_threads / Lanes;
  static constexpr int tokens = columns > 64 ? 4 : 16;  ///< of a stage
};

/// Holds what some tokens bring and get.
template <typename H>
struct alignas(16) Stage {
  SharedArray<SharedArray<float, H::columns>, H::tokens> b, c;  ///< zeros past the columns
  SharedArray<SharedArray<float, H::channels>, H::tokens> dt, x, y;
};

/// Channels, and tokens of them, that a block owns; and the thread's channel.
struct Share {
  int first_channel, channels, first_token, last_token;
};

/// A thread's part of a stage, on its way from memory to shared memory.
template <typename T, typename H>
struct Copies {
  static constexpr int of_columns = H::tokens * H::columns / block_threads;
  static constexpr int of_channels = (H::tokens * H::channels + block_threads - 1) / block_threads;
  static_assert(of_columns * block_threads == H::tokens * H::columns);
  static_assert(block_threads % H::channels == 0);  // a thread copies for one channel

  T b[of_columns], c[of_columns], dt[of_channels], x[of_channels];

  __device__ __forceinline__ static int item(int i) {
    return i * block_threads + static_cast<int>(threadIdx.x);
  }

  template <typename S>
  __device__ __forceinline__ void fetch(const Params<T, S>& p, const Share& share, int first) {
    const int left = share.last_token - first;
#pragma unroll
    for (int i = 0; i < of_columns; ++i) {
      const int token = item(i) / H::columns, column = item(i) % H::columns;
      const bool is_there = token < left && column < p.columns;
      b[i] = is_there ? p.b[(first + token) * p.b_stride + column] : T{};
      c[i] = is_there ? p.c[(first + token) * p.c_stride + column] : T{};
    }
#pragma unroll
    for (int i = 0; i < of_channels; ++i) {
      const int token = item(i) / H::channels, channel = item(i) % H::channels;
      const bool is_there = token < H::tokens && token < left && channel < share.channels;
      const std::int64_t at = share.first_channel + channel;
      dt[i] = is_there ? p.dt[(first + token) * p.dt_stride + at] : T{};
      x[i] = is_there ? p.x[(first + token) * p.x_stride + at] : T{};
    }
  }
  __device__ __forceinline__ void put(float dt_bias, Stage<H>& stage) const {
#pragma unroll
    for (int i = 0; i < of_columns; ++i) {
      stage.b[item(i) / H::columns][item(i) % H::columns] = to_float(b[i]);
      stage.c[item(i) / H::columns][item(i) % H::columns] = to_float(c[i]);
    }
#pragma unroll
    for (int i = 0; i < of_channels; ++i) {
      const int token = item(i) / H::channels, channel = item(i) % H::channels;
      if (token >= H::tokens) continue;
      stage.dt[token][channel] = softplus(to_float(dt[i]) + dt_bias);
      stage.x[token][channel] = to_float(x[i]);
    }
  }
};

/// V neighbours, `left` of which are there; zeros past them, and where `from` is null.
template <int V, typename E>
__device__ __forceinline__ void load_neighbours(const E* from, int left, bool has_fours,
                                                float (&values)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += 4) {
    float four[4] = {};
    if (from != nullptr && has_fours && i < left) {
      load_four(from + i, four);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (from != nullptr && i + j < left) four[j] = to_float(from[i + j]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i + j] = four[j];
  }
}
template <int V, typename S>
__device__ __forceinline__ void store_neighbours(S* to, int left, bool has_fours,
                                                 const float (&values)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += 4) {
    if (has_fours && i < left) {
      store_four(to + i, {values[i], values[i + 1], values[i + 2], values[i + 3]});
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < left) to[i + j] = rounded<S>(values[i + j]);
      }
    }
  }
}

/// A lane's columns of a token in shared memory.
template <int V>
__device__ __forceinline__ void load_shared(const float* from, float (&values)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += 4) {
    float four[4];
    unpack(load16(from + i), four);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i + j] = four[j];
  }
}

/// The lane's channel over tokens t .. t + 3 of a stage, of which those before `stop` are there:
/// all, if Whole. A quarter of the channel's lanes gets the answer of each.
template <typename S, typename H, bool Whole>
__device__ __forceinline__ void run_group(Stage<H>& stage, int t, int stop,
                                          const float (&rate)[H::lane_columns], float d,
                                          float (&state)[H::lane_columns]) {
  constexpr int quarter = H::lanes / group_tokens;
  const int thread = static_cast<int>(threadIdx.x);
  const int channel = thread / H::lanes, lane = thread % H::lanes;
  float sums[group_tokens];
#pragma unroll
  for (int i = 0; i < group_tokens; ++i) {
    sums[i] = 0.0F;
    if (!Whole && t + i >= stop) continue;
    float b[H::lane_columns], c[H::lane_columns];
    load_shared(&stage.b[t + i][lane * H::lane_columns], b);
    load_shared(&stage.c[t + i][lane * H::lane_columns], c);
    const float dt = stage.dt[t + i][channel], input = dt * stage.x[t + i][channel];
#pragma unroll
    for (int n = 0; n < H::lane_columns; ++n) {
      const float next = fmaf(state[n], exp2_fast(dt * rate[n]), input * b[n]);
      state[n] = to_float(rounded<S>(next));
      sums[i] = fmaf(state[n], c[n], sums[i]);
    }
  }
  const float sum = warp_sums<H::lanes>(sums);
  const int own = t + lane / quarter;
  if (lane % quarter == 0 && own < stop) {
    stage.y[own][channel] = fmaf(d, stage.x[own][channel], sum);
  }
}

/// The block's answers of a stage's tokens, from `token` on.
template <typename T, typename S, typename H>
__device__ __forceinline__ void store_answers(const Params<T, S>& p, const Share& share, int token,
                                              const Stage<H>& stage) {
  const int left = share.last_token - token, tokens = left < H::tokens ? left : H::tokens;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * H::channels; i += block_threads) {
    const int channel = i % H::channels;
    if (channel >= share.channels) continue;
    p.y[(token + i / H::channels) * p.y_stride + share.first_channel + channel] =
        rounded<T>(stage.y[i / H::channels][channel]);
  }
}

/// grid (channel pieces, R): a block owns some channels in one chain of spans, whose states stay in
/// registers from its first token to its last: it is that of the chain's first span. What the next
/// tokens bring is on its way while it computes. Decays are within (4 + |dt * rate|) * 2^-23 of the
/// exact ones, relatively, and sums over columns in f32 in a fixed order: y is within (N + 16) *
/// 2^-22 * sum_n |S*C| of what such decays give, not counting the roundings of the contract.
template <typename T, typename S, typename H>
__global__ void __launch_bounds__(block_threads, H::lane_columns > 4 ? 3 : 4)
    s6_kernel(const Params<T, S> p) {
  constexpr int V = H::lane_columns;
  auto& stage = shared_object<Stage<H>>();
  const int thread = static_cast<int>(threadIdx.x), spans = static_cast<int>(gridDim.y);
  Share share;
  share.first_channel = static_cast<int>(blockIdx.x) * H::channels;
  share.channels = p.heads - share.first_channel;
  const int channel = thread / H::lanes, column = thread % H::lanes * V;
  const bool is_there = channel < share.channels;
  const int left = is_there ? p.columns - column : 0;
  const std::int64_t at =
      (static_cast<std::int64_t>(share.first_channel) + channel) * p.columns + column;
  let_next_kernel_start();
  constexpr float log2_e = 1.44269504F;
  float rate[V], state[V];
  load_neighbours(p.rate + at, left, p.has_fours, rate);
#pragma unroll
  for (float& of_column : rate) of_column *= log2_e;
  const float d = is_there ? p.d[share.first_channel + channel] : 0.0F;
  const int copied = share.first_channel + thread % H::channels;
  const float dt_bias = copied < p.heads ? p.dt_bias[copied] : 0.0F;
  wait_for_previous_kernel();
  int index = static_cast<int>(blockIdx.y);
  SpanEntry span = span_at(p, index, spans);
  if (span.continues_previous || span.first == span.last) return;
  share.first_token = span.first;
  share.last_token = end_of_chain(p, index, span, spans);

  Copies<T, H> copies;
  copies.fetch(p, share, share.first_token);
  const std::int64_t from = span.read_slot;
  load_neighbours(from < 0 ? nullptr : p.state + from * p.state_stride + at, left, p.has_fours,
                  state);
  copies.put(dt_bias, stage);
  for (int token = share.first_token; token < share.last_token; token += H::tokens) {
    sync_block();  // the stage has arrived for all
    const int next = token + H::tokens;
    if (next < share.last_token) copies.fetch(p, share, next);
    const int end = next < share.last_token ? next : share.last_token;
    for (int begin = token;;) {
      const int stop = span.last < end ? span.last : end;
      int t = begin - token;
#pragma unroll 1
      for (; t + group_tokens <= stop - token; t += group_tokens) {
        run_group<S, H, true>(stage, t, stop - token, rate, d, state);
      }
      if (t < stop - token) run_group<S, H, false>(stage, t, stop - token, rate, d, state);
      if (stop < span.last) break;
      if (span.write_slot >= 0) {
        store_neighbours(p.state + span.write_slot * p.state_stride + at, left, p.has_fours, state);
      }
      if (!span.next_continues) break;
      begin = stop;
      span = span_at(p, ++index, spans);
    }
    sync_block();  // all answers are there, and nothing reads the stage any more
    store_answers(p, share, token, stage);
    if (next < share.last_token) copies.put(dt_bias, stage);
  }
}

template <typename H, typename T, typename S>
void run(Stream& stream, const Params<T, S>& params, std::int64_t spans) {
  launch(stream,
         {.blocks = dim3(pieces(params.heads, H::channels), static_cast<unsigned>(spans)),
          .threads = block_threads},
         s6_kernel<T, S, H>, params);
}

template <typename T, typename S>
Params<T, S> params_of(const SelectiveScan& op) {
  const std::int64_t columns = op.state.dim(3);
  return {recurrence_params<T, S>(op),
          op.dt.as<T>(),
          op.b.as<T>(),
          op.c.as<T>(),
          op.d.as<float>(),
          op.dt.row_stride,
          op.b.row_stride,
          op.c.row_stride,
          has_fours(op.state.as<S>(), op.state.row_stride, columns) &&
              has_fours(op.rate.as<float>(), 0, columns)};
}

}  // namespace

void selective_scan(Stream& stream, const SelectiveScan& op) {
  const std::int64_t columns = op.state.dim(3), spans = op.read_slot.dim(0);
  if (op.x.dim(0) == 0 || spans == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) {
      const Params<T, S> params = params_of<T, S>(op);
      if (columns <= 16) return run<Shape<4, 4>>(stream, params, spans);
      if (columns <= 64) return run<Shape<16, 4>>(stream, params, spans);
      run<Shape<32, 8>>(stream, params, spans);
    });
  });
}

}  // namespace hyb::kernels::cuda
