#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/ops/check.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/queue.h"
#include "kernels/simd/routes.h"
#include "kernels/tensor.h"
#include "kernels/visit.h"

/// This file has what the plain loops of ssd and delta_rule do alike around their steps. A Job is
/// the share of either: the state of a head is its `rows` times `columns`.
namespace hyb::kernels {

inline float softplus(float value) { return value > 20.0F ? value : std::log1p(std::exp(value)); }

/// A span of one head: the state goes from slot to slot, and there from token to token by
/// step(token, head, state).
template <typename Job, typename Step>
void run_head(const Job& job, std::int64_t span, std::int64_t head, Step&& step) {
  const std::int64_t size = job.rows * job.columns;
  const std::int32_t from = job.read_slot[span], to = job.write_slot[span];
  std::vector<std::remove_pointer_t<decltype(job.state)>> discarded;
  if (to < 0) discarded.resize(static_cast<std::size_t>(size));
  auto* const state = to < 0 ? discarded.data() : job.state + to * job.slot_stride + head * size;
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(*state);
  if (from < 0) {
    std::memset(state, 0, bytes);
  } else if (from != to) {
    std::memcpy(state, job.state + from * job.slot_stride + head * size, bytes);
  }
  for (std::int64_t t = job.span_begin[span]; t < job.span_begin[span + 1]; ++t) {
    step(t, head, state);
  }
}

/// The thread's share of `heads`, in every span.
template <typename Job, typename Step>
void run_heads(const Job& job, std::int64_t heads, Step&& step) {
  const Slice share = slice_of(heads, 1, job.thread, job.threads);
  for (std::int64_t span = 0; span < job.spans; ++span) {
    for (std::int64_t head = share.begin; head < share.end; ++head) {
      run_head(job, span, head, step);
    }
  }
}

/// The tables of either op.
template <typename Op>
void check_tables(const Check& check, const Op& op) {
  const std::int64_t spans = check.spans(op.span_begin, op.x.dim(0));
  check.slots(op.read_slot, op.write_slot, spans, op.state.dim(0));
  if (!check.reads_tables()) return;
  const auto* const begin = op.span_begin.template as<std::int32_t>();
  for (std::int64_t r = 0; r < spans; ++r) {
    if (op.write_slot.template as<std::int32_t>()[r] >= 0) continue;
    check.that(op.token_by_token, "what leaves no state goes token by token", r);
    const std::int32_t tokens = begin[r + 1] - begin[r];
    check.that(tokens <= discarded_tokens_max, "few tokens leave no state", tokens);
  }
}

template <typename T, typename S, typename Op>
RecurrenceShare<T, S> recurrence_share(const Op& op, int thread, int threads) {
  return {.x = op.x.template as<T>(),
          .rate = op.rate.template as<float>(),
          .dt_bias = op.dt_bias.template as<float>(),
          .state = op.state.template as<S>(),
          .y = op.y.template as<T>(),
          .span_begin = op.span_begin.template as<std::int32_t>(),
          .read_slot = op.read_slot.template as<std::int32_t>(),
          .write_slot = op.write_slot.template as<std::int32_t>(),
          .spans = op.read_slot.dim(0),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .slot_stride = op.state.row_stride,
          .rows = op.state.dim(2),
          .columns = op.state.dim(3),
          .thread = thread,
          .threads = threads};
}

/// Calls body(RecurrenceShare) on as many threads as there is work for: every token touches every
/// element of a slot.
template <typename Op, typename Body>
void share_recurrence(Queue& queue, const Op& op, Body&& body) {
  auto part = [&](int thread, int threads) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      visit_float(op.state.dtype,
                  [&]<typename S>(Tag<S>) { body(recurrence_share<T, S>(op, thread, threads)); });
    });
  };
  const std::int64_t elements = op.x.dim(0) * op.state.dim(1) * op.state.dim(2) * op.state.dim(3);
  if (elements <= elements_alone) {
    queue.alone(part);
  } else {
    queue.parallel(part);
  }
}

/// CUDA's chunked delta_rule cuts every span into chunks of 64 tokens from its first one on. Chunk
/// i of span r has place span_begin[r] / 64 + r + i, which no other chunk has; so a step has places
/// enough for all of its chunks, however its tokens are split into spans, and no number of a table
/// is needed.
inline constexpr std::int64_t delta_chunk_tokens = 64;

inline std::int64_t delta_chunk_places(std::int64_t tokens, std::int64_t spans) {
  return tokens / delta_chunk_tokens + spans;
}

/// One launch leaves this much for the next of a chunk of a head: two matrices of bf16 [64,64], and
/// the tokens' factors.
inline constexpr std::int64_t delta_matrix_size = delta_chunk_tokens * delta_chunk_tokens;
inline constexpr std::int64_t delta_factors_size = 3 * delta_chunk_tokens + 4;

/// Returns the bytes of all places. With decays per channel (`channels` above 0) a place has,
/// instead of the factors, three tiles of bf16 [64,channels] and what a chunk leaves of each row.
inline std::int64_t delta_chunk_bytes(std::int64_t places, std::int64_t heads,
                                      std::int64_t channels) {
  const std::int64_t made = channels > 0 ? channels * (3 * delta_chunk_tokens * 2 + 4)
                                         : delta_factors_size * std::int64_t{4};
  return places * heads * (2 * delta_matrix_size * 2 + made);
}

/// A block of CUDA's chunked ssd owns a part of a head's rows in one span, or in one segment of it
/// where spans are too few to fill a card: segments' last states from zeros, then the states at
/// their starts, then the answers. All of it follows from what the host knows, so that a graph
/// stays right when the tables change.
inline constexpr std::int64_t ssd_chunk_tokens = 64;
inline constexpr std::int64_t ssd_segment_tokens_min = 4 * ssd_chunk_tokens;
inline constexpr std::int64_t ssd_blocks_full = 264;    ///< from here on a large card is full
inline constexpr std::int64_t ssd_blocks_wanted = 528;  ///< what segments aim at

/// Rows of a head that a block takes, so that its state fits into registers and its tiles into
/// shared memory; 0 where the chunked form has no kernel for the shape.
inline std::int64_t ssd_part_rows(std::int64_t rows, std::int64_t columns) {
  if (columns != 64 && columns != 128 && columns != 256) return 0;
  if (rows != 32 && rows != 64 && rows != 80 && rows != 128) return 0;
  if (columns == 256) return rows == 80 ? 16 : 32;
  return rows == 128 ? 64 : rows;
}

struct SsdSegments {
  std::int64_t tokens;  ///< of a segment, counted from its span's first token; 0: spans are whole
  std::int64_t count;   ///< the most in all spans together
};

inline SsdSegments ssd_segments(std::int64_t tokens, std::int64_t spans, std::int64_t heads,
                                std::int64_t rows, std::int64_t columns) {
  const std::int64_t blocks = heads * (rows / ssd_part_rows(rows, columns));  // of a segment
  if (spans * blocks >= ssd_blocks_full) return {0, spans};
  const std::int64_t wanted = std::max<std::int64_t>(ssd_blocks_wanted / blocks, 1);
  const std::int64_t length = std::max((tokens + wanted - 1) / wanted, ssd_segment_tokens_min);
  const std::int64_t whole = (length + ssd_chunk_tokens - 1) / ssd_chunk_tokens * ssd_chunk_tokens;
  if (tokens <= whole) return {0, spans};
  return {whole, tokens / whole + spans};
}

/// No call has more segments.
inline std::int64_t ssd_segments_max(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  const std::int64_t part_rows = ssd_part_rows(rows, columns);
  if (part_rows == 0 || heads * (rows / part_rows) >= ssd_blocks_full) return 0;
  const std::int64_t blocks = heads * (rows / part_rows);
  return std::max<std::int64_t>(ssd_blocks_wanted / blocks, 1) + (ssd_blocks_full - 1) / blocks;
}

/// A state and a decay for every head, in f32.
inline std::size_t ssd_segment_bytes(std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(heads * (rows * columns + 1)) * sizeof(float);
}

}  // namespace hyb::kernels
