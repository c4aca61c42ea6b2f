#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/chunk_tile.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/recurrence.h"
#include "kernels/ops/ssd.cuh"

/// This file has what a block does with one chunk of tokens, by four warps. Tokens' inputs are in
/// shared memory as bf16, the state in registers as f32: a warp owns a quarter of its columns.
namespace hyb::kernels::cuda {

static_assert(chunk_tokens == ssd_chunk_tokens);

/// A chunk's step sizes: dt; the logarithm of what is left of the state before the chunk once the
/// token has been; and the token's weight in the state after the chunk.
struct ChunkSteps {
  SharedArray<float, chunk_tokens> dt, log_decay, weight;
  SharedArray<float, 1> total;  ///< log_decay of the last token
};

/// Two bf16 times two numbers, rounded again.
__device__ __forceinline__ std::uint32_t scaled_pair(std::uint32_t pair, const float (&by)[2]) {
  return pack_bf16(std::bit_cast<float>(pair << 16) * by[0],
                   std::bit_cast<float>(pair & 0xffff0000U) * by[1]);
}

/// The parameters of every kernel of the chunked form; the state's type only counts at a span's
/// ends.
struct ChunkParams : SsdParams<bf16, void> {
  bool state_is_bf16;
  int spans;
  int parts;                               ///< of a head's rows, each a block's
  float *segment_states, *segment_decays;  ///< [segments,heads,P,N], [segments,heads]
  int x_step, y_step;                      ///< from token to token: 64 of them stay below 2^31
  int segment_tokens;                      ///< 0: spans are whole

  /// Elements of the state of all heads.
  __host__ __device__ std::int64_t slot_size() const {
    return static_cast<std::int64_t>(heads) * rows * columns;
  }
};

/// The raw dt of two tokens per lane of one warp.
struct RawSteps {
  float first, second;
};
__device__ __forceinline__ RawSteps load_steps(const ChunkParams& p, int head, int token,
                                               int last) {
  const int at = token + 2 * (static_cast<int>(threadIdx.x) % warp_size);
  const bf16* const dt = p.dt + at * p.dt_stride + head;
  return {at < last ? to_float(dt[0]) : 0.0F, at + 1 < last ? to_float(dt[p.dt_stride]) : 0.0F};
}

/// One warp makes the steps of the chunk at `token`; tokens from `last` on do nothing.
__device__ __forceinline__ void make_steps(const ChunkParams& p, int head, int token, int last,
                                           RawSteps raw, ChunkSteps& steps) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float dt[2], log_decay[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float value = (i == 0 ? raw.first : raw.second) + p.dt_bias[head];
    const bool is_there = token + 2 * lane + i < last;
    dt[i] = is_there ? step_size(value, p.dt_min, p.dt_max) : 0.0F;
    const float exact = dt[i] * p.rate[head];
    log_decay[i] = exact < log_decay_min ? log_decay_min : exact;
  }
  float sum = log_decay[0] + log_decay[1];
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const float below = shuffle_up(sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += below;
  }
  const float before = shuffle_up(sum, 1);
  const float total = shuffle(sum, warp_size - 1);
  const float sums[2] = {(lane == 0 ? 0.0F : before) + log_decay[0], sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    steps.dt[2 * lane + i] = dt[i];
    steps.log_decay[2 * lane + i] = sums[i];
    steps.weight[2 * lane + i] = dt[i] * exp_not_above_one(total - sums[i]);
  }
  if (lane == 0) steps.total[0] = total;
}

/// A block's part of the state in a warp's registers: Rows/16 by Columns/4/8 tiles of 16x8, as
/// mma_bf16 leaves them.
template <int Rows, int Columns>
struct ChunkState {
  static constexpr int row_tiles = Rows / 16, warp_columns = Columns / chunk_warps;
  static constexpr int column_tiles = warp_columns / 8;

  float values[row_tiles][column_tiles][4];

  /// body(row, column, first, second) for every pair of neighbours.
  template <typename Body>
  __device__ __forceinline__ void each_pair(Body&& body) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int column = static_cast<int>(threadIdx.x) / warp_size * warp_columns + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < column_tiles; ++n) {
        float(&tile)[4] = values[m][n];
        body(m * 16 + lane / 4, column + n * 8, tile[0], tile[1]);
        body(m * 16 + lane / 4 + 8, column + n * 8, tile[2], tile[3]);
      }
    }
  }

  /// From rows of `Columns`; null: zeros.
  template <typename S>
  __device__ __forceinline__ void load(const S* from) {
    each_pair([&](int row, int column, float& first, float& second) {
      const float2 pair = from == nullptr ? float2{0, 0} : load_pair(from + row * Columns + column);
      first = pair.x;
      second = pair.y;
    });
  }
  template <typename S>
  __device__ __forceinline__ void store(S* to) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to + row * Columns + column, first, second);
    });
  }
  __device__ __forceinline__ void spread(ChunkTile<Rows, Columns>& to) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to.at(row, column), first, second);
    });
  }

  /// state <- decay * state + x^T (weight * b): to the state after the chunk.
  __device__ __forceinline__ void move_on(const ChunkTile<chunk_tokens, Rows>& x,
                                          const ChunkTile<chunk_tokens, Columns>& b,
                                          const ChunkSteps& steps, int tokens) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int column = static_cast<int>(threadIdx.x) / warp_size * warp_columns;
    const float decay = exp_not_above_one(steps.total[0]);
#pragma unroll
    for (auto& row : values) {
#pragma unroll
      for (auto& tile : row) {
#pragma unroll
        for (float& value : tile) value *= decay;
      }
    }
#pragma unroll 1
    for (int k = 0; k < chunk_tokens && k < tokens; k += 16) {
      const int token = k + lane % 4 * 2;
      const float low[2] = {steps.weight[token], steps.weight[token + 1]};
      const float high[2] = {steps.weight[token + 8], steps.weight[token + 9]};
      std::uint32_t weighted[column_tiles][2];
#pragma unroll
      for (int n = 0; n < column_tiles; n += 2) {
        std::uint32_t pairs[4];
        ldmatrix_x4_transposed(
            pairs, b.at(k + lane % 8 + lane / 8 % 2 * 8, column + n * 8 + lane / 16 * 8));
        weighted[n][0] = scaled_pair(pairs[0], low);
        weighted[n][1] = scaled_pair(pairs[1], high);
        weighted[n + 1][0] = scaled_pair(pairs[2], low);
        weighted[n + 1][1] = scaled_pair(pairs[3], high);
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        std::uint32_t a[4];
        ldmatrix_x4_transposed(a, x.at(k + lane % 8 + lane / 16 * 8, m * 16 + lane / 8 % 2 * 8));
#pragma unroll
        for (int n = 0; n < column_tiles; ++n) {
          mma_bf16(values[m][n], a, weighted[n][0], weighted[n][1]);
        }
      }
    }
  }
};

/// 16 tokens of y, by a warp: rows lane/4 and lane/4 + 8 of its own, as mma_bf16 leaves them.
template <int Rows>
struct ChunkAnswer {
  static constexpr int tiles = Rows / 8;

  float values[tiles][4];
  int first;  ///< this lane's upper token in the chunk; the lower is 8 after it

  /// values = exp(log_decay) * c state^T + (c b^T, causal and decayed) (dt x)
  template <int Columns>
  __device__ __forceinline__ void make(const ChunkTile<chunk_tokens, Columns>& c,
                                       const ChunkTile<chunk_tokens, Columns>& b,
                                       const ChunkTile<chunk_tokens, Rows>& x,
                                       const ChunkTile<Rows, Columns>& state,
                                       const ChunkSteps& steps) {
    constexpr int key_tiles = chunk_tokens / 16;
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    first = warp * 16 + lane / 4;
    float scores[2 * key_tiles][4] = {};
#pragma unroll
    for (auto& tile : values) {
#pragma unroll
      for (float& value : tile) value = 0.0F;
    }
    // A k-row of operands for the transposed right side, two tiles of 8 rows at once.
    const int row = lane % 8 + lane / 16 * 8, column = lane / 8 % 2 * 8;
#pragma unroll 1
    for (int k = 0; k < Columns; k += 16) {
      std::uint32_t a[4], right[4];
      ldmatrix_x4(a, c.at(warp * 16 + lane % 16, k + lane / 16 * 8));
#pragma unroll
      for (int j = 0; j < key_tiles; ++j) {  // all of them: the last warp needs them in any case
        ldmatrix_x4(right, b.at(j * 16 + row, k + column));
        mma_bf16(scores[2 * j], a, right[0], right[1]);
        mma_bf16(scores[2 * j + 1], a, right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        ldmatrix_x4(right, state.at(n * 8 + row, k + column));
        mma_bf16(values[n], a, right[0], right[1]);
        mma_bf16(values[n + 1], a, right[2], right[3]);
      }
    }

    const float log_decay[2] = {steps.log_decay[first], steps.log_decay[first + 8]};
    const float start[2] = {exp_not_above_one(log_decay[0]), exp_not_above_one(log_decay[1])};
#pragma unroll
    for (auto& tile : values) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= start[i / 2];
    }
#pragma unroll
    for (int j = 0; j < key_tiles; ++j) {
      if (j > warp) break;
      std::uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float masked[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = first + i / 2 * 8, key = j * 16 + half * 8 + lane % 4 * 2 + i % 2;
          const float decay = exp_not_above_one(log_decay[i / 2] - steps.log_decay[key]);
          masked[i] = scores[2 * j + half][i] * (decay * (key <= token ? steps.dt[key] : 0.0F));
        }
        a[2 * half] = pack_bf16(masked[0], masked[1]);
        a[2 * half + 1] = pack_bf16(masked[2], masked[3]);
      }
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        std::uint32_t right[4];
        ldmatrix_x4_transposed(right,
                               x.at(j * 16 + lane % 8 + lane / 8 % 2 * 8, n * 8 + lane / 16 * 8));
        mma_bf16(values[n], a, right[0], right[1]);
        mma_bf16(values[n + 1], a, right[2], right[3]);
      }
    }
  }

  /// y = values + d * x, of the chunk's first `tokens`; `y` is the first one's row.
  __device__ __forceinline__ void store(bf16* y, int stride, int tokens, float d,
                                        const ChunkTile<chunk_tokens, Rows>& x) const {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + half * 8;
      if (token >= tokens) break;
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const float2 input = load_pair(x.at(token, n * 8 + column));
        store_pair(y + token * stride + n * 8 + column, fmaf(d, input.x, values[n][2 * half]),
                   fmaf(d, input.y, values[n][2 * half + 1]));
      }
    }
  }
};

namespace {

/// Says what the smaller cards' multiprocessors give to one block.
constexpr std::size_t shared_bytes_everywhere = 99 << 10;

/// So that a chunk's offsets are 32-bit numbers.
constexpr std::int64_t row_stride_max = 1 << 24;

/// Inputs of a chunk. Two stages where they fit: then the next chunk comes while one is computed.
template <int Rows, int Columns>
struct alignas(16) Inputs {
  ChunkTile<chunk_tokens, Columns> b;
  ChunkTile<chunk_tokens, Rows> x;
};

template <int Rows, int Columns, int Stages>
struct alignas(16) SharedOf {
  SharedArray<Inputs<Rows, Columns>, Stages> inputs;
  SharedArray<ChunkTile<chunk_tokens, Columns>, Stages> c;
  ChunkTile<Rows, Columns> state;
  SharedArray<ChunkSteps, 2> steps;
};
template <int Rows, int Columns>
inline constexpr int stages_of = sizeof(SharedOf<Rows, Columns, 2>) <= shared_bytes_everywhere ? 2
                                                                                               : 1;
template <int Rows, int Columns>
using Shared = SharedOf<Rows, Columns, stages_of<Rows, Columns>>;

template <int Rows, int Columns>
struct alignas(16) EndShared {
  SharedArray<Inputs<Rows, Columns>, 2> inputs;
  SharedArray<ChunkSteps, 2> steps;
};

/// Tokens first .. last-1 of one span, or of a segment of it.
struct Piece {
  SpanEntry span;
  int first, last;
  int index;     ///< of the span, or of the segment over all spans, where they follow each other
  bool is_last;  ///< of its span
};

__device__ __forceinline__ int segments_of(const ChunkParams& p, int span) {
  const int tokens = p.span_begin[span + 1] - p.span_begin[span];
  return (tokens + p.segment_tokens - 1) / p.segment_tokens;
}

__device__ __forceinline__ Piece whole_span(const ChunkParams& p, int index) {
  const SpanEntry span = span_at(p, index, p.spans);
  return {span, span.first, span.last, index, true};
}

/// Piece blockIdx.y; one without tokens where there are fewer pieces.
__device__ __forceinline__ Piece piece_of_block(const ChunkParams& p) {
  const int index = static_cast<int>(blockIdx.y);
  if (p.segment_tokens == 0) return whole_span(p, index);
  int before = 0;
  for (int i = 0; i < p.spans; ++i) {
    const int count = segments_of(p, i);
    if (index < before + count) {
      const SpanEntry span = span_at(p, i, p.spans);
      const int first = span.first + (index - before) * p.segment_tokens;
      const bool is_last = index + 1 == before + count;
      return {span, first, is_last ? span.last : first + p.segment_tokens, index, is_last};
    }
    before += count;
  }
  return {};
}

/// Rows of a head that a block owns, as element offsets.
struct Part {
  int head;
  std::int64_t first_row;  ///< over all heads
};

template <int Rows>
__device__ __forceinline__ Part part_of_block(const ChunkParams& p) {
  const int head = static_cast<int>(blockIdx.x) / p.parts;
  const int part = static_cast<int>(blockIdx.x) % p.parts;
  return {head, static_cast<std::int64_t>(head) * p.rows + part * Rows};
}

template <int Rows, int Columns>
__device__ __forceinline__ void copy_inputs(const ChunkParams& p, const Part& part, int token,
                                            int last, Inputs<Rows, Columns>& to) {
  const bf16* const line = p.x + token * p.x_stride;
  copy_chunk(to.b, line + p.b_of(part.head), p.x_step, last - token);
  copy_chunk(to.x, line + part.first_row, p.x_step, last - token);
}

/// The state before a piece.
template <int Rows, int Columns>
__device__ __forceinline__ void load_state(const ChunkParams& p, const Piece& piece,
                                           const Part& part, ChunkState<Rows, Columns>& state) {
  const std::int64_t at = part.first_row * Columns;
  if (p.segment_tokens != 0) return state.load(p.segment_states + piece.index * p.slot_size() + at);
  const std::int64_t slot = piece.span.read_slot;
  const std::int64_t from = slot * p.state_stride + at;
  if (p.state_is_bf16) {
    state.load(slot < 0 ? nullptr : static_cast<const bf16*>(p.state) + from);
  } else {
    state.load(slot < 0 ? nullptr : static_cast<const float*>(p.state) + from);
  }
}

template <int Rows, int Columns>
__device__ __forceinline__ void store_state(const ChunkParams& p, const Piece& piece,
                                            const Part& part, ChunkState<Rows, Columns>& state) {
  const std::int64_t to = piece.span.write_slot * p.state_stride + part.first_row * Columns;
  if (p.state_is_bf16) {
    state.store(static_cast<bf16*>(p.state) + to);
  } else {
    state.store(static_cast<float*>(p.state) + to);
  }
}

/// A block's part of a piece that has tokens.
template <int Rows, int Columns>
__device__ __forceinline__ void run_piece(const ChunkParams& p, const Part& part,
                                          const Piece& piece, Shared<Rows, Columns>& shared) {
  constexpr int stages = stages_of<Rows, Columns>;
  const bool makes_steps = threadIdx.x < warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const auto copy = [&](int token, int stage) {
    copy_inputs(p, part, token, piece.last, shared.inputs[stage]);
    copy_chunk(shared.c[stage], p.x + token * p.x_stride + p.c_of(part.head), p.x_step,
               piece.last - token);
    cp_async_commit();
  };

  copy(piece.first, 0);
  ChunkState<Rows, Columns> state;
  load_state(p, piece, part, state);
  state.spread(shared.state);
  if (makes_steps) {
    const RawSteps raw = load_steps(p, part.head, piece.first, piece.last);
    make_steps(p, part.head, piece.first, piece.last, raw, shared.steps[0]);
  }
  int turn = 0;
  for (int token = piece.first;; token += chunk_tokens, turn = 1 - turn) {
    const int next = token + chunk_tokens, tokens = piece.last - token;
    const int stage = stages > 1 ? turn : 0;
    const bool next_continues = next < piece.last;
    cp_async_wait<0>();
    sync_block();  // inputs, steps and the spread state have arrived
    if (stages > 1 && next_continues) copy(next, 1 - stage);
    RawSteps raw = {};
    if (makes_steps && next_continues) raw = load_steps(p, part.head, next, piece.last);

    const auto& inputs = shared.inputs[stage];
    const ChunkSteps& steps = shared.steps[turn];
    if (warp * 16 < tokens) {
      ChunkAnswer<Rows> answer;
      answer.make(shared.c[stage], inputs.b, inputs.x, shared.state, steps);
      answer.store(p.y + token * p.y_stride + part.first_row, p.y_step, tokens, p.d[part.head],
                   inputs.x);
    }
    state.move_on(inputs.x, inputs.b, steps, tokens);
    if (!next_continues) break;
    // The first warp has the fewest keys, and time for this.
    if (makes_steps) make_steps(p, part.head, next, piece.last, raw, shared.steps[1 - turn]);
    sync_block();  // the spread state, and any single stage, are no longer read
    if (stages == 1) copy(next, 0);
    state.spread(shared.state);
  }
  if (piece.is_last) store_state(p, piece, part, state);
}

/// grid (heads * parts, spans or segments): a block owns some rows of a head and walks the chunks
/// of its segment, or of its span and of those that continue it, with their state in registers,
/// as f32 from chunk to chunk. Against the plain loop: let A be what it answers where x, B, C and
/// the state are replaced by their magnitudes; then y is within 2^-7 * A, not counting its
/// rounding, and the state within 2^-8 * A; the products' operands (state, weighted B, decayed C*B)
/// are bf16.
template <int Rows, int Columns>
__global__ void __launch_bounds__(chunk_threads, 2) ssd_chunk_kernel(const ChunkParams p) {
  auto& shared = dynamic_shared<Shared<Rows, Columns>>();
  const Part part = part_of_block<Rows>(p);
  start_next_and_wait();
  const bool in_segments = p.segment_tokens != 0;
  Piece piece = piece_of_block(p);
  if (piece.first == piece.last || (!in_segments && piece.span.continues_previous)) return;
  for (;;) {
    run_piece<Rows, Columns>(p, part, piece, shared);
    if (in_segments || !piece.span.next_continues) return;
    piece = whole_span(p, piece.index + 1);
    sync_block();  // the last chunk is no longer read
  }
}

/// grid (heads * parts, segments): the state that a segment would leave if it began with zeros, and
/// what it leaves of another. That of the last of a span is not needed, unless another span
/// continues it.
template <int Rows, int Columns>
__global__ void __launch_bounds__(chunk_threads, 2) ssd_segment_kernel(const ChunkParams p) {
  auto& shared = dynamic_shared<EndShared<Rows, Columns>>();
  const bool makes_steps = threadIdx.x < warp_size;
  const Part part = part_of_block<Rows>(p);
  start_next_and_wait();
  const Piece piece = piece_of_block(p);
  if (piece.first == piece.last || (piece.is_last && !piece.span.next_continues)) return;
  const auto copy = [&](int token, int stage) {
    copy_inputs(p, part, token, piece.last, shared.inputs[stage]);
    cp_async_commit();
  };

  copy(piece.first, 0);
  ChunkState<Rows, Columns> state;
  state.load(static_cast<const float*>(nullptr));
  float log_decay = 0.0F;
  if (makes_steps) {
    const RawSteps raw = load_steps(p, part.head, piece.first, piece.last);
    make_steps(p, part.head, piece.first, piece.last, raw, shared.steps[0]);
  }
  int turn = 0;
  for (int token = piece.first;; token += chunk_tokens, turn = 1 - turn) {
    const int next = token + chunk_tokens;
    const bool next_continues = next < piece.last;
    cp_async_wait<0>();
    sync_block();  // inputs and steps have arrived, and the others are no longer read
    if (next_continues) copy(next, 1 - turn);
    RawSteps raw = {};
    if (makes_steps && next_continues) raw = load_steps(p, part.head, next, piece.last);
    log_decay += shared.steps[turn].total[0];
    state.move_on(shared.inputs[turn].x, shared.inputs[turn].b, shared.steps[turn],
                  piece.last - token);
    if (!next_continues) break;
    if (makes_steps) make_steps(p, part.head, next, piece.last, raw, shared.steps[1 - turn]);
  }
  state.store(p.segment_states + piece.index * p.slot_size() + part.first_row * Columns);
  if (threadIdx.x == 0 && blockIdx.x % static_cast<unsigned>(p.parts) == 0) {
    p.segment_decays[piece.index * p.heads + part.head] = exp_not_above_one(log_decay);
  }
}

constexpr int start_threads = 256;
constexpr int start_elements = 4;  ///< of a thread

/// grid (shares of a state, spans): the state before every segment, from those of the segments
/// before it; a thread owns neighbouring elements and walks the segments of its span and
/// of those that continue it.
__global__ void __launch_bounds__(start_threads) ssd_start_kernel(const ChunkParams p) {
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * start_threads + threadIdx.x) * start_elements;
  int index = static_cast<int>(blockIdx.y);
  start_next_and_wait();
  SpanEntry span = span_at(p, index, p.spans);
  int left = segments_of(p, index);
  if (at >= p.slot_size() || left == 0 || span.continues_previous) return;
  std::int64_t segment = 0;
  for (int i = 0; i < index; ++i) segment += segments_of(p, i);
  const std::int64_t head = at / (static_cast<std::int64_t>(p.rows) * p.columns);
  const std::int64_t slot = span.read_slot;
  float state[start_elements] = {};
  if (slot >= 0) {
    for (int i = 0; i < start_elements; i += 2) {
      const std::int64_t from = slot * p.state_stride + at + i;
      const float2 pair = p.state_is_bf16 ? load_pair(static_cast<const bf16*>(p.state) + from)
                                          : load_pair(static_cast<const float*>(p.state) + from);
      state[i] = pair.x;
      state[i + 1] = pair.y;
    }
  }
  for (;; ++segment) {
    float* const place = p.segment_states + segment * p.slot_size() + at;
    if (--left == 0 && !span.next_continues) return store16(place, pack(state));
    float end[start_elements];
    unpack(load16(place), end);
    const float decay = p.segment_decays[segment * p.heads + head];
    store16(place, pack(state));
    for (int j = 0; j < start_elements; ++j) state[j] = fmaf(decay, state[j], end[j]);
    if (left > 0) continue;
    span = span_at(p, ++index, p.spans);
    left = segments_of(p, index);
    if (!p.state_is_bf16) continue;
    for (float& value : state) value = to_float(rounded<bf16>(value));  // as the slot keeps it
  }
}

ChunkParams params_of(const MambaScan& op, const SsdSegments& plan) {
  ChunkParams params;
  static_cast<SsdParams<bf16, void>&>(params) = ssd_params<bf16, void>(op);
  params.spans = static_cast<int>(op.read_slot.dim(0));
  params.state_is_bf16 = op.state.dtype == DType::bf16;
  params.parts = params.rows / static_cast<int>(ssd_part_rows(params.rows, params.columns));
  params.x_step = static_cast<int>(params.x_stride);
  params.y_step = static_cast<int>(params.y_stride);
  params.segment_tokens = static_cast<int>(plan.tokens);
  params.segment_states = op.workspace.as<float>();
  params.segment_decays = params.segment_states + plan.count * params.slot_size();
  return params;
}

template <int Rows, int Columns>
void run(Stream& stream, const ChunkParams& params, const SsdSegments& plan) {
  const auto blocks = static_cast<unsigned>(params.heads * params.parts);
  const dim3 grid(blocks, static_cast<unsigned>(plan.count));
  if (plan.tokens != 0) {
    launch(stream,
           {.blocks = grid,
            .threads = chunk_threads,
            .shared_bytes = sizeof(EndShared<Rows, Columns>)},
           ssd_segment_kernel<Rows, Columns>, params);
    launch(stream,
           {.blocks = dim3(pieces(params.slot_size(), start_threads * start_elements),
                           static_cast<unsigned>(params.spans)),
            .threads = start_threads},
           ssd_start_kernel, params);
  }
  launch(stream,
         {.blocks = grid, .threads = chunk_threads, .shared_bytes = sizeof(Shared<Rows, Columns>)},
         ssd_chunk_kernel<Rows, Columns>, params);
}

template <int Columns>
void run_columns(Stream& stream, const ChunkParams& params, const SsdSegments& plan) {
  const int rows = params.rows / params.parts;
  if constexpr (Columns == 256) {
    if (rows == 16) return run<16, Columns>(stream, params, plan);
    return run<32, Columns>(stream, params, plan);
  } else {
    if (rows == 32) return run<32, Columns>(stream, params, plan);
    if (rows == 64) return run<64, Columns>(stream, params, plan);
    return run<80, Columns>(stream, params, plan);
  }
}

}  // namespace

bool ssd_chunked_takes(const MambaScan& op) {
  return std::max(op.x.row_stride, op.y.row_stride) <= row_stride_max &&
         op.x.dtype == DType::bf16 && ssd_part_rows(op.state.dim(2), op.state.dim(3)) != 0 &&
         is_vector_aligned(op.x.as<bf16>(), op.x.row_stride) &&
         reinterpret_cast<std::uintptr_t>(op.y.data) % 4 == 0 && op.y.row_stride % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(op.state.data) % 8 == 0 && op.state.row_stride % 2 == 0;
}

void ssd_chunked(Stream& stream, const MambaScan& op) {
  if (op.x.dim(0) == 0) return;
  const std::int64_t heads = op.state.dim(1), rows = op.state.dim(2), columns = op.state.dim(3);
  const std::int64_t spans = op.read_slot.dim(0);
  SsdSegments plan = ssd_segments(op.x.dim(0), spans, heads, rows, columns);
  const auto needed =
      static_cast<std::int64_t>(ssd_segment_bytes(heads, rows, columns)) * plan.count;
  if (op.workspace.empty() || op.workspace.dim(0) < needed) plan = {0, spans};
  const ChunkParams params = params_of(op, plan);
  if (columns == 64) return run_columns<64>(stream, params, plan);
  if (columns == 128) return run_columns<128>(stream, params, plan);
  run_columns<256>(stream, params, plan);
}

}  // namespace hyb::kernels::cuda
