#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/ops/ssd.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

/// Says whether some span is long enough for chunks to pay. The host knows their mean only: a
/// chunk's tile costs about as much as a few tokens one by one.
bool has_long_spans(const MambaScan& op) {
  const std::int64_t tokens = op.x.dim(0), spans = op.read_slot.dim(0);
  return tokens >= 4 * spans && tokens >= spans + 31;
}

}  // namespace

void mamba_scan(Stream& stream, const MambaScan& op) {
  const bool may_chunk = !stream.batch_invariant() && !op.token_by_token;
  if (may_chunk && has_long_spans(op) && ssd_chunked_takes(op)) {
    ssd_chunked(stream, op);
  } else {
    ssd_scan(stream, op);
  }
}

namespace {

constexpr int block_warps = 4;
constexpr int block_threads = block_warps * warp_size;
constexpr int block_rows = block_warps * warp_rows;  ///< of one head's state
constexpr int stage_tokens = 16;

template <typename T, typename S>
struct Params : SsdParams<T, S> {
  bool x_is_aligned, state_is_aligned;
};

/// Holds what some tokens bring: one stage is filled while the other is used.
template <typename T, int V>
struct alignas(16) Stage {
  SharedArray<SharedArray<T, V * warp_size>, stage_tokens> b, c;  ///< zeros past the columns
  SharedArray<SharedArray<T, block_rows>, stage_tokens> x;
  SharedArray<float, stage_tokens> dt, decay;
};

template <typename T, int V>
struct Shared {
  SharedArray<Stage<T, V>, 2> stages;
};

/// Says what a block owns: some rows of one head, in one chain.
struct Share {
  int head, first_row, rows;
  int first_token, last_token;
};

template <typename T, int Length>
__device__ __forceinline__ void stage_row(SharedArray<T, Length>& to, const T* from, int count,
                                          bool is_aligned, int thread, int threads) {
  if (is_aligned) {
    for (int i = thread * vector_size<T>; i < count; i += threads * vector_size<T>) {
      cp_async16(&to[i], from + i);
    }
  } else {
    for (int i = thread; i < count; i += threads) to[i] = from[i];
  }
}

/// Copies the tokens from `token` on; a warp takes every fourth.
template <typename T, typename S, int V>
__device__ __forceinline__ void stage_tokens_from(const Params<T, S>& p, const Share& share,
                                                  int token, Stage<T, V>& stage) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t own = static_cast<std::int64_t>(share.head) * p.rows + share.first_row;
  for (int i = warp; i < stage_tokens && token + i < share.last_token; i += block_warps) {
    const T* const line = p.x + (token + i) * p.x_stride;
    stage_row(stage.b[i], line + p.b_of(share.head), p.columns, p.x_is_aligned, lane, warp_size);
    stage_row(stage.c[i], line + p.c_of(share.head), p.columns, p.x_is_aligned, lane, warp_size);
    stage_row(stage.x[i], line + own, share.rows, p.x_is_aligned, lane, warp_size);
  }
  cp_async_commit();
}

/// Clears what lies past the columns, which no copy ever overwrites.
template <typename T, typename S, int V>
__device__ __forceinline__ void clear_padding(const Params<T, S>& p, Shared<T, V>& shared) {
  const int padding = V * warp_size - p.columns;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * stage_tokens * padding; i += block_threads) {
    auto& stage = shared.stages[i / padding % 2];
    const int token = i / padding / 2, column = p.columns + i % padding;
    stage.b[token][column] = rounded<T>(0.0F);
    stage.c[token][column] = rounded<T>(0.0F);
  }
}

/// The warp's rows over the tokens of a stage, from `token` on, that are before `stop`.
template <typename T, typename S, int V>
__device__ __forceinline__ void run_stage(const Params<T, S>& p, const Share& share,
                                          const Stage<T, V>& stage, int first, int token, int stop,
                                          float (&state)[warp_rows][V]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp_row = static_cast<int>(threadIdx.x) / warp_size * warp_rows;
  const int row = warp_row + lane / 8;
  const bool writes = lane % 8 == 0 && row < share.rows;
  const float d = p.d[share.head];
  T* y = p.y + token * p.y_stride + static_cast<std::int64_t>(share.head) * p.rows +
         share.first_row + row;
#pragma unroll 2
  for (int t = token - first; t < stop - first; ++t, y += p.y_stride) {
    float b[V], c[V], input[warp_rows];
    load_columns<V>(&stage.b[t][0], b);
    load_columns<V>(&stage.c[t][0], c);
    load_vector<warp_rows>(&stage.x[t][warp_row], input, 0);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) input[r] *= stage.dt[t];
    const float sum = advance<S, V>(state, stage.decay[t], input, b, c);
    if (writes) *y = rounded<T>(fmaf(d, to_float(stage.x[t][row]), sum));
  }
}

/// grid (heads * row pieces, R): a block owns some rows of one head in one chain of spans, in
/// registers from its first token to its last: it is that of the chain's first span. The next
/// tokens are on their way while it computes. The bound of mamba_step holds for every token.
template <typename T, typename S, int V>
__global__ void __launch_bounds__(block_threads, V <= 4 ? 5 : 4)
    ssd_scan_kernel(const Params<T, S> p) {
  auto& shared = dynamic_shared<Shared<T, V>>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_size;
  const int spans = static_cast<int>(gridDim.y);
  const int row_pieces = (p.rows + block_rows - 1) / block_rows;
  Share share;
  share.head = static_cast<int>(blockIdx.x) / row_pieces;
  share.first_row = static_cast<int>(blockIdx.x) % row_pieces * block_rows;
  share.rows = p.rows - share.first_row < block_rows ? p.rows - share.first_row : block_rows;
  start_next_and_wait();
  int index = static_cast<int>(blockIdx.y);
  SpanEntry span = span_at(p, index, spans);
  if (span.continues_previous || span.first == span.last) return;
  share.first_token = span.first;
  share.last_token = end_of_chain(p, index, span, spans);

  const auto load_dt = [&](int token) {
    const bool is_there = thread < stage_tokens && token + thread < share.last_token;
    return is_there ? to_float(p.dt[(token + thread) * p.dt_stride + share.head]) : 0.0F;
  };
  const auto store_steps = [&](float raw, Stage<T, V>& stage) {
    if (thread >= stage_tokens) return;
    const float dt = step_size(raw + p.dt_bias[share.head], p.dt_min, p.dt_max);
    stage.dt[thread] = dt;
    stage.decay[thread] = step_decay(dt, p.rate[share.head]);
  };
  const StateRows rows = {share.rows - warp * warp_rows, p.columns, p.state_is_aligned};
  const std::int64_t at =
      (static_cast<std::int64_t>(share.head) * p.rows + share.first_row + warp * warp_rows) *
      p.columns;
  const std::int64_t from = span.read_slot;
  float state[warp_rows][V];
  load_rows(from < 0 ? nullptr : p.state + from * p.state_stride + at, rows, state);
  stage_tokens_from(p, share, share.first_token, shared.stages[0]);
  store_steps(load_dt(share.first_token), shared.stages[0]);
  clear_padding(p, shared);

  int stage = 0;
  for (int token = share.first_token; token < share.last_token; token += stage_tokens) {
    cp_async_wait<0>();
    sync_block();  // the stage has arrived for all, and all are done with the other one
    const int next = token + stage_tokens;
    float raw = 0.0F;
    if (next < share.last_token) {
      stage_tokens_from(p, share, next, shared.stages[1 - stage]);
      raw = load_dt(next);
    }
    const int end = next < share.last_token ? next : share.last_token;
    for (int begin = token; rows.rows > 0;) {
      const int stop = span.last < end ? span.last : end;
      run_stage(p, share, shared.stages[stage], token, begin, stop, state);
      if (stop < span.last) break;
      if (span.write_slot >= 0) {
        store_rows(p.state + span.write_slot * p.state_stride + at, rows, state);
      }
      if (!span.next_continues) break;
      begin = stop;
      span = span_at(p, ++index, spans);
    }
    if (next < share.last_token) store_steps(raw, shared.stages[1 - stage]);
    stage = 1 - stage;
  }
}

template <typename T, typename S>
void run(Stream& stream, const MambaScan& op) {
  Params<T, S> params = {ssd_params<T, S>(op), false, false};
  params.x_is_aligned = is_vector_aligned(params.x, params.x_stride) &&
                        params.rows % vector_size<T> == 0 && params.columns % vector_size<T> == 0;
  params.state_is_aligned = has_fours(params.state, params.state_stride, params.columns);
  visit_columns(params.columns, [&](auto lane_columns) {
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.rows, block_rows),
                           static_cast<unsigned>(op.read_slot.dim(0))),
            .threads = block_threads,
            .shared_bytes = sizeof(Shared<T, lane_columns>)},
           ssd_scan_kernel<T, S, lane_columns>, params);
  });
}

}  // namespace

void ssd_scan(Stream& stream, const MambaScan& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.state.dtype, [&]<typename S>(Tag<S>) { run<T, S>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
