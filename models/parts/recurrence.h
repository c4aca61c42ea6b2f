#pragma once

#include <cstdint>

#include "kernels/ops/draft_ring.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/recurrent_step.h"
#include "models/parts/part.h"

namespace hyb::models {

/// Spans that the ops of a recurrence take at once.
struct RecurrentSpans {
  kernels::Tensor span_begin, read_slot, write_slot;
  bool token_by_token = false;  ///< as in kernels::MambaScan

  /// Takes those of a step's spans that are not in its ring tables.
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

/// A recurrence reads this of some tokens: its convolution's inputs, and its own besides them.
struct RecurrentInputs {
  kernels::Tensor x, controls;

  RecurrentInputs rows(std::int64_t first, std::int64_t count) const {
    return {x.rows(first, count), controls.rows(first, count)};
  }
  /// copy(matrix, column of the ring) of both, side by side as a ring has them.
  template <typename Copy>
  void for_each_piece(const Copy& copy) const {
    kernels::Tensor both = x;
    both.dims[1] += controls.dim(1);
    if (x.empty() || both.columns(x.dim(1), 0).data == controls.data) return copy(both, 0);
    copy(x, 0);
    copy(controls, x.dim(1));
  }
};

/// Columns of the tensors around a recurrence.
struct RecurrentWidths {
  std::int64_t channels;  ///< of the convolution
  std::int64_t controls, outputs;

  std::int64_t ring() const { return channels + controls; }
  /// `inputs`: of the projection before it.
  std::size_t scratch_bytes(const StepSetting& setting, std::int64_t inputs) const {
    const auto space = [&](std::int64_t rows, std::int64_t first) {
      return Scratch::space(setting.activation, rows, first) +
             Scratch::space(setting.activation, rows, channels) +
             Scratch::space(setting.activation, rows, outputs);
    };
    return space(setting.limits.step_tokens, inputs) + space(setting.limits.ring_rows, ring());
  }
};

inline void set_controls(kernels::MambaScan& op, const kernels::Tensor& dt) { op.dt = dt; }
inline void set_controls(kernels::DeltaRule& op, const kernels::Tensor& ba) {
  const std::int64_t heads = op.rate.dim(0);
  op.b = ba.columns(0, heads);
  op.a = ba.columns(heads, ba.dim(1) - heads);
}

/// A part's convolution and recurrence between its projections; without taps the recurrence alone.
/// Op is the recurrence's.
template <typename Op>
struct Recurrence {
  RecurrentWidths widths;
  kernels::Tensor conv_weight, conv_bias;
  Op op;  ///< its weights and numbers; all else comes with a step
  void (*scan)(kernels::Queue&, const Op&);
  void (*step)(kernels::Queue&, const kernels::RecurrentStep<Op>&);

  /// The step's tokens, to y; `convolved` [T, channels] is room to work in.
  void run(const PartMemory& memory, const PartCall& call, const RecurrentInputs& inputs,
           const kernels::Tensor& convolved, const kernels::Tensor& y) const {
    RecurrentSpans spans = RecurrentSpans::without_ring(call.tables);
    spans.token_by_token = call.tables.single_tokens;
    const auto ops = [&](std::int64_t tokens) {
      return ops_of(memory, spans, inputs.rows(0, tokens), convolved.rows(0, tokens),
                    y.rows(0, tokens));
    };
    if (call.tables.single_tokens && has_taps()) return step(call.queue, ops(y.dim(0)));
    run_spans(
        call, y, [&](std::int64_t tokens) { run_ops(call.queue, ops(tokens)); },
        [&](std::int64_t first, std::int64_t tokens) {
          return verify(memory, call, inputs.rows(first, tokens));
        });
  }

  /// Takes what a ring has of drafts that were accepted into the states.
  void advance(const PartMemory& memory, const PartCall& call) const {
    const ScratchFrame frame(call.scratch);
    const auto none = [&](std::int64_t columns) {
      return kernels::Tensor(nullptr, memory.rings.dtype, {0, columns});
    };
    scan_ring(memory, call, {none(widths.channels), none(widths.controls)});
  }

 private:
  bool has_taps() const { return !conv_weight.empty(); }

  kernels::RecurrentStep<Op> ops_of(const PartMemory& memory, const RecurrentSpans& spans,
                                    const RecurrentInputs& inputs, const kernels::Tensor& convolved,
                                    const kernels::Tensor& y) const {
    kernels::RecurrentStep<Op> ops = {.convolution = {.x = inputs.x,
                                                      .weight = conv_weight,
                                                      .bias = conv_bias,
                                                      .windows = memory.windows,
                                                      .span_begin = spans.span_begin,
                                                      .read_slot = spans.read_slot,
                                                      .write_slot = spans.write_slot,
                                                      .y = convolved},
                                      .recurrence = op,
                                      .semaphores = memory.semaphores.rows(0, y.dim(0))};
    ops.recurrence.x = has_taps() ? convolved : inputs.x;
    // Constant time steps ignore these controls, so any numbers do.
    set_controls(ops.recurrence,
                 widths.controls > 0 ? inputs.controls : inputs.x.columns(0, op.rate.dim(0)));
    ops.recurrence.state = memory.states;
    ops.recurrence.span_begin = spans.span_begin;
    ops.recurrence.read_slot = spans.read_slot;
    ops.recurrence.write_slot = spans.write_slot;
    ops.recurrence.y = y;
    ops.recurrence.workspace = memory.workspace;
    ops.recurrence.token_by_token = spans.token_by_token;
    return ops;
  }

  void run_ops(kernels::Queue& queue, const kernels::RecurrentStep<Op>& ops) const {
    if (has_taps()) kernels::causal_conv(queue, ops.convolution);
    scan(queue, ops.recurrence);
  }

  /// The spans of the ring tables, whose own tokens' inputs these are; y of all their rows.
  kernels::Tensor scan_ring(const PartMemory& memory, const PartCall& call,
                            const RecurrentInputs& own) const {
    const RingTables& ring = call.tables.ring;
    const std::int64_t rows = ring.from.dim(0);
    const auto take = [&](std::int64_t columns) {
      return call.scratch.take(memory.rings.dtype, {rows, columns});
    };
    const kernels::Tensor all = take(widths.ring()), convolved = take(widths.channels),
                          y = take(widths.outputs);
    own.for_each_piece([&](const kernels::Tensor& piece, std::int64_t column) {
      kernels::extend_rows(call.queue, {.x = piece,
                                        .ring = memory.rings,
                                        .from = ring.from,
                                        .y = all.columns(column, piece.dim(1)),
                                        .ring_column = column});
    });
    const RecurrentInputs inputs = {all.columns(0, widths.channels),
                                    all.columns(widths.channels, widths.controls)};
    run_ops(call.queue, ops_of(memory, RecurrentSpans::with_ring(ring), inputs, convolved, y));
    return y;
  }

  /// The same of a step's tokens, whose drafts are kept.
  kernels::Tensor verify(const PartMemory& memory, const PartCall& call,
                         const RecurrentInputs& own) const {
    const kernels::Tensor y = scan_ring(memory, call, own);
    own.for_each_piece([&](const kernels::Tensor& piece, std::int64_t column) {
      kernels::keep_rows(call.queue, {.x = piece,
                                      .gate = {},
                                      .to = call.tables.ring.kept,
                                      .ring = memory.rings,
                                      .ring_column = column});
    });
    return y;
  }
};

}  // namespace hyb::models
