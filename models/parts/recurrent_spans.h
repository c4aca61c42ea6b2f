#pragma once

#include <cstdint>

#include "kernels/ops/gather.h"
#include "models/parts/part.h"

namespace hyb::models {

/// What the ops of a recurrence take at once.
struct RecurrentSpans {
  kernels::Tensor span_begin, read_slot, write_slot;
  bool token_by_token = false;  ///< as in kernels::Ssd

  /// Of a step's spans, those that are not in its ring tables.
  static RecurrentSpans without_ring(const StepTables& tables) {
    const std::int64_t spans = tables.read_slot.dim(0) - tables.ring.spans;
    return {.span_begin = tables.span_begin.rows(0, spans + 1),
            .read_slot = tables.read_slot.rows(0, spans),
            .write_slot = tables.write_slot.rows(0, spans)};
  }
  static RecurrentSpans with_ring(const RingTables& ring) {
    return {.span_begin = ring.span_begin,
            .read_slot = ring.read_slot,
            .write_slot = ring.write_slot,
            .token_by_token = true};
  }
};

/// All spans of a step, into y [T, columns]. `scan(tokens)` runs those that are not in the ring
/// tables, the first `tokens` of the step; `verify(first, tokens)` the others, whose tokens begin
/// at `first`, and returns y of all rows of the ring tables.
template <typename Scan, typename Verify>
void run_spans(const PartCall& call, const kernels::Tensor& y, const Scan& scan,
               const Verify& verify) {
  const RingTables& ring = call.tables.ring;
  const std::int64_t last = ring.tokens, first = y.dim(0) - last;
  if (first > 0) scan(first);
  if (last == 0) return;
  const ScratchFrame frame(call.scratch);
  const kernels::Tensor all = verify(first, last);
  kernels::gather_rows(call.queue, {.x = all, .rows = ring.row_of_token, .y = y.rows(first, last)});
}

}  // namespace hyb::models
