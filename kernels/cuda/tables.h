#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_page.h"
#include "kernels/cuda/ptx.h"
#include "kernels/ops/kv_pages.h"

namespace hyb::kernels::cuda {

/// The span that has `token`, for a whole warp. Spans after the last token are empty.
__device__ __forceinline__ int span_of(const std::int32_t* span_begin, int spans, int token) {
  unsigned started = 0;
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < spans; i += warp_size) {
    started += span_begin[i] <= token ? 1U : 0U;
  }
  return static_cast<int>(reduce_add(started)) - 1;
}

/// The same by a whole block; `spans` for a token after the last span.
__device__ __forceinline__ int span_of_by_block(const std::int32_t* span_begin, int spans,
                                                int token) {
  int started = 0;
  for (int first = 0; first <= spans; first += static_cast<int>(blockDim.x)) {
    const int i = first + static_cast<int>(threadIdx.x);
    started += sync_block_count(i <= spans && span_begin[i] <= token);
  }
  return started - 1;
}

/// KvPages as kernels take them. page_of() needs of the layout the tokens of a page alone.
template <typename K>
struct PageParams {
  K* arena;  ///< null: there are none
  const std::int32_t *span_begin, *position, *page_begin, *pages;
  std::int64_t page_stride;
  KvPage layout;
  int spans;

  /// Returns a position's page in the arena; `first_page` is where its span's begin in `pages`.
  __device__ std::int64_t page_of(int first_page, int at) const {
    return pages[first_page + at / layout.page_tokens] * page_stride;
  }
};

template <typename K>
PageParams<K> page_params(const KvPages& kv, std::int64_t head_dim) {
  return {.arena = kv.arena.as<K>(),
          .span_begin = kv.span_begin.as<std::int32_t>(),
          .position = kv.position.as<std::int32_t>(),
          .page_begin = kv.page_begin.as<std::int32_t>(),
          .pages = kv.pages.as<std::int32_t>(),
          .page_stride = kv.arena.row_stride,
          .layout = {static_cast<int>(head_dim), static_cast<int>(kv.page_tokens)},
          .spans = static_cast<int>(kv.spans())};
}

/// Holds what the kernels of either recurrence have in common (ssd, delta_rule; the steps have no
/// spans). T is the type of activations, S of the state, of which a head has `rows` times
/// `columns`.
template <typename T, typename S>
struct RecurrenceParams {
  const T* x;
  const float *rate, *dt_bias;
  S* state;
  T* y;
  const std::int32_t *span_begin, *read_slot, *write_slot;
  std::int64_t x_stride, y_stride, state_stride;
  int heads, rows, columns;
};

template <typename T, typename S, typename Op>
RecurrenceParams<T, S> recurrence_params(const Op& op) {
  return {.x = op.x.template as<T>(),
          .rate = op.rate.template as<float>(),
          .dt_bias = op.dt_bias.template as<float>(),
          .state = op.state.template as<S>(),
          .y = op.y.template as<T>(),
          .span_begin = op.span_begin.template as<std::int32_t>(),
          .read_slot = op.read_slot.template as<std::int32_t>(),
          .write_slot = op.write_slot.template as<std::int32_t>(),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .state_stride = op.state.row_stride,
          .heads = static_cast<int>(op.state.dim(1)),
          .rows = static_cast<int>(op.state.dim(2)),
          .columns = static_cast<int>(op.state.dim(3))};
}

/// Holds what the tables say of a span and of its neighbours: see CausalConv for chains.
struct SpanEntry {
  int first, last;  ///< tokens first .. last-1
  int read_slot, write_slot;
  bool continues_previous;  ///< it continues the span before it
  bool next_continues;      ///< the next one continues it
};

/// Params has the tables span_begin, read_slot and write_slot.
template <typename Params>
__device__ __forceinline__ SpanEntry span_at(const Params& p, int span, int spans) {
  const int first = p.span_begin[span], last = p.span_begin[span + 1];
  const int from = p.read_slot[span], to = p.write_slot[span];
  const int before = span > 0 ? p.write_slot[span - 1] : -1;
  const int next = span + 1 < spans ? p.read_slot[span + 1] : -1;
  return {first, last, from, to, from >= 0 && from == before, to >= 0 && to == next};
}

/// The token after the chain that starts with the span, which may be all of it.
template <typename Params>
__device__ __forceinline__ int end_of_chain(const Params& p, int index, SpanEntry span, int spans) {
  while (span.next_continues) span = span_at(p, ++index, spans);
  return span.last;
}

}  // namespace hyb::kernels::cuda
