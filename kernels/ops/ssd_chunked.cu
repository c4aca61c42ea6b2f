#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/spans.h"
#include "kernels/ops/ssd_chunk.cuh"
#include "kernels/ops/ssd_cuda.h"
#include "kernels/ops/ssd_segments.h"

namespace hyb::kernels::cuda {
namespace {

/// What the smaller cards' multiprocessors give to one block.
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

/// Which rows of which head a block owns, as element offsets.
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
    const bool goes_on = next < piece.last;
    cp_async_wait<0>();
    sync_block();  // inputs, steps and the spread state are there
    if (stages > 1 && goes_on) copy(next, 1 - stage);
    RawSteps raw = {};
    if (makes_steps && goes_on) raw = load_steps(p, part.head, next, piece.last);

    const auto& inputs = shared.inputs[stage];
    const ChunkSteps& steps = shared.steps[turn];
    if (warp * 16 < tokens) {
      ChunkAnswer<Rows> answer;
      answer.make(shared.c[stage], inputs.b, inputs.x, shared.state, steps);
      answer.store(p.y + token * p.y_stride + part.first_row, p.y_step, tokens, p.d[part.head],
                   inputs.x);
    }
    state.move_on(inputs.x, inputs.b, steps, tokens);
    if (!goes_on) break;
    // The first warp has the fewest keys, and time for this.
    if (makes_steps) make_steps(p, part.head, next, piece.last, raw, shared.steps[1 - turn]);
    sync_block();  // nobody reads the spread state, or a single stage, any more
    if (stages == 1) copy(next, 0);
    state.spread(shared.state);
  }
  if (piece.is_last) store_state(p, piece, part, state);
}

/// grid (heads * parts, spans or segments): a block owns some rows of a head and walks the chunks
/// of its segment, or of its span and of those that go on from it, with their state in registers,
/// as f32 from chunk to chunk. Against the plain loop: let A be what it answers where x, B, C and
/// the state are replaced by their magnitudes; then y is within 2^-7 * A, besides its rounding, and
/// the state within 2^-8 * A; the products' operands (state, weighted B, decayed C*B) are bf16.
template <int Rows, int Columns>
__global__ void __launch_bounds__(chunk_threads, 2) ssd_chunk_kernel(const ChunkParams p) {
  auto& shared = dynamic_shared<Shared<Rows, Columns>>();
  const Part part = part_of_block<Rows>(p);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const bool in_segments = p.segment_tokens != 0;
  Piece piece = piece_of_block(p);
  if (piece.first == piece.last || (!in_segments && piece.span.is_continued)) return;
  for (;;) {
    run_piece<Rows, Columns>(p, part, piece, shared);
    if (in_segments || !piece.span.goes_on) return;
    piece = whole_span(p, piece.index + 1);
    sync_block();  // nobody reads the last chunk any more
  }
}

/// grid (heads * parts, segments): the state that a segment would leave if it began with zeros, and
/// what it leaves of another. Nobody asks for the last of a span, unless another goes on from it.
template <int Rows, int Columns>
__global__ void __launch_bounds__(chunk_threads, 2) ssd_segment_kernel(const ChunkParams p) {
  auto& shared = dynamic_shared<EndShared<Rows, Columns>>();
  const bool makes_steps = threadIdx.x < warp_size;
  const Part part = part_of_block<Rows>(p);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Piece piece = piece_of_block(p);
  if (piece.first == piece.last || (piece.is_last && !piece.span.goes_on)) return;
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
    const bool goes_on = next < piece.last;
    cp_async_wait<0>();
    sync_block();  // inputs and steps are there, and nobody reads the others any more
    if (goes_on) copy(next, 1 - turn);
    RawSteps raw = {};
    if (makes_steps && goes_on) raw = load_steps(p, part.head, next, piece.last);
    log_decay += shared.steps[turn].total[0];
    state.move_on(shared.inputs[turn].x, shared.inputs[turn].b, shared.steps[turn],
                  piece.last - token);
    if (!goes_on) break;
    if (makes_steps) make_steps(p, part.head, next, piece.last, raw, shared.steps[1 - turn]);
  }
  state.store(p.segment_states + piece.index * p.slot_size() + part.first_row * Columns);
  if (threadIdx.x == 0 && blockIdx.x % static_cast<unsigned>(p.parts) == 0) {
    p.segment_decays[piece.index * p.heads + part.head] = exp_not_above_one(log_decay);
  }
}

constexpr int start_threads = 256;
constexpr int start_elements = 4;  ///< of a thread

/// grid (shares of a state, spans): what stands before every segment, from what the ones in front
/// of it leave; a thread owns neighbouring elements and walks the segments of its span and of those
/// that go on from it.
__global__ void __launch_bounds__(start_threads) ssd_start_kernel(const ChunkParams p) {
  const std::int64_t at =
      (static_cast<std::int64_t>(blockIdx.x) * start_threads + threadIdx.x) * start_elements;
  int index = static_cast<int>(blockIdx.y);
  let_next_kernel_start();
  wait_for_previous_kernel();
  SpanEntry span = span_at(p, index, p.spans);
  int left = segments_of(p, index);
  if (at >= p.slot_size() || left == 0 || span.is_continued) return;
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
    if (--left == 0 && !span.goes_on) return store16(place, pack(state));
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

ChunkParams params_of(const Ssd& op, const SsdSegments& plan) {
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
            .shared_bytes = sizeof(EndShared<Rows, Columns>),
            .starts_early = true},
           ssd_segment_kernel<Rows, Columns>, params);
    launch(stream,
           {.blocks = dim3(pieces(params.slot_size(), start_threads * start_elements),
                           static_cast<unsigned>(params.spans)),
            .threads = start_threads,
            .starts_early = true},
           ssd_start_kernel, params);
  }
  launch(stream,
         {.blocks = grid,
          .threads = chunk_threads,
          .shared_bytes = sizeof(Shared<Rows, Columns>),
          .starts_early = true},
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

bool ssd_chunked_takes(const Ssd& op) {
  return std::max(op.x.row_stride, op.y.row_stride) <= row_stride_max &&
         op.x.dtype == DType::bf16 && ssd_part_rows(op.state.dim(2), op.state.dim(3)) != 0 &&
         is_vector_aligned(op.x.as<bf16>(), op.x.row_stride) &&
         reinterpret_cast<std::uintptr_t>(op.y.data) % 4 == 0 && op.y.row_stride % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(op.state.data) % 8 == 0 && op.state.row_stride % 2 == 0;
}

void ssd_chunked(Stream& stream, const Ssd& op) {
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
