#include "models/drafting/pass_draft_runner.h"

#include "kernels/linear/project.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/shift_rows.h"
#include "models/parts/recurrence.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Counts what further drafts begin with.
std::size_t kept_bytes(const Plan& plan, DType activation, const StepLimits& limits) {
  return Scratch::space(activation, limits.rows, plan.width);
}

std::size_t zeros_bytes(const Plan& plan, DType activation) {
  return Scratch::space(activation, 1, plan.width);
}

/// The same row for all tokens.
Tensor repeated(const kernels::Buffer& row, DType dtype, std::int64_t tokens,
                std::int64_t columns) {
  Tensor rows = row.tensor(0, dtype, {1, columns});
  rows.dims[0] = tokens;
  rows.row_stride = 0;
  return rows;
}

void shift(const PartCall& call, const PartMemory& memory, const RecurrentSpans& spans,
           const Tensor& x, const Tensor& y) {
  kernels::shift_rows(call.queue, {.x = x,
                                   .kept = memory.windows,
                                   .span_begin = spans.span_begin,
                                   .read_slot = spans.read_slot,
                                   .write_slot = spans.write_slot,
                                   .y = y});
}

}  // namespace

PassDraftRunner::PassDraftRunner(LayerRunner& layers, const StepLimits& limits, float norm_eps)
    : DraftRunner(layers, norm_eps),
      width_(layers.plan().width),
      kept_(queue_.device(), kept_bytes(layers.plan(), layers.activation(), limits)),
      zeros_(queue_.device(), zeros_bytes(layers.plan(), layers.activation())) {}

std::size_t PassDraftRunner::bytes() const { return kept_.bytes() + zeros_.bytes(); }

std::size_t PassDraftRunner::bytes(const Plan& plan, const StepSetting& setting) {
  return kept_bytes(plan, setting.activation, setting.limits) +
         zeros_bytes(plan, setting.activation);
}

/// Pairs of embedding and hidden, and what goes through rings; of an EAGLE-3 head the logits.
std::size_t PassDraftRunner::scratch_bytes(const Plan& plan, const StepSetting& setting) {
  const StepLimits& limits = setting.limits;
  const Eagle3* const eagle = plan.draft->eagle();
  const std::int32_t own_vocab = eagle == nullptr ? 0 : eagle->vocab;
  return Scratch::space(setting.activation, limits.step_tokens, 2 * std::int64_t{plan.width}) +
         2 * Scratch::space(setting.activation, limits.ring_rows, plan.width) +
         Scratch::space(DType::f32, limits.rows, own_vocab);
}

PartCall PassDraftRunner::first_input(const StepTables& tables, const Tensor& /*pairs*/,
                                      const Streams& streams) {
  return layers_.input_of(draft_plan().layers.front().blocks.front(),
                          draft_weights().layers.front().blocks.front(), tables, streams);
}

void PassDraftRunner::make_pairs(const StepTables& tables, float embedding_scale,
                                 const Tensor& hidden, const Tensor& pairs) {
  const Tensor embedding = pairs.columns(0, width_);
  kernels::embed(queue_, {.weight = &layers_.weights().embed,
                          .tokens = tables.tokens,
                          .y = embedding,
                          .scale = embedding_scale});
  kernels::apply(queue_, draft_norm(draft_weights().embedding_norm), embedding, embedding);
  kernels::apply(queue_, draft_norm(draft_weights().hidden_norm), hidden,
                 pairs.columns(width_, width_));
}

/// The hidden state of a sequence's last position: in every slot, and of drafts in rings.
PartMemory PassDraftRunner::carry() const {
  const std::size_t last = layers_.draft_ordinals().slots;
  Tensor kept = layers_.store().windows(last);
  kept.rank = 2;  // a window of one
  return {.windows = kept, .rings = layers_.store().rings(last)};
}

/// Returns for all rows of the spans in the ring tables the row of the token before, since drafts
/// continue from there; their tokens' own rows are `hidden`.
Tensor PassDraftRunner::carried_with_ring(const PartCall& call, const Tensor& hidden) {
  const RingTables& ring = call.tables.ring;
  const PartMemory memory = carry();
  const Tensor rows = call.scratch.take(layers_.activation(), {ring.from.dim(0), width_});
  const Tensor y = call.scratch.take(layers_.activation(), {ring.from.dim(0), width_});
  kernels::extend_rows(call.queue,
                       {.x = hidden, .ring = memory.rings, .from = ring.from, .y = rows});
  shift(call, memory, RecurrentSpans::with_ring(ring), rows, y);
  return y;
}

/// For every token the hidden state of the one before. That of the last ones is kept, in
/// pages where `keeps`; slots have their tables for that.
void PassDraftRunner::carry_over(const PartCall& call, const Tensor& hidden, const Tensor& y,
                                 bool keeps) {
  if (layers_.geometry().has_hidden_pages()) return carry_in_pages(call, hidden, y, keeps);
  run_spans(
      call, y,
      [&](std::int64_t tokens) {
        shift(call, carry(), RecurrentSpans::without_ring(call.tables), hidden.rows(0, tokens),
              y.rows(0, tokens));
      },
      [&](std::int64_t first, std::int64_t tokens) {
        const Tensor own = hidden.rows(first, tokens);
        const Tensor all = carried_with_ring(call, own);
        kernels::keep_rows(
            call.queue, {.x = own, .gate = {}, .to = call.tables.ring.kept, .ring = carry().rings});
        return all;
      });
}

void PassDraftRunner::carry_in_pages(const PartCall& call, const Tensor& hidden, const Tensor& y,
                                     bool keeps) {
  const Tensor arena = layers_.store().arena(layers_.geometry().pages.size() - 1);
  const Tensor pages(arena.data, layers_.activation(),
                     {arena.dim(0), layers_.geometry().page_tokens, width_});
  const StepTables& tables = call.tables;
  kernels::extend_rows(queue_, {.x = hidden, .ring = pages, .from = tables.hidden_before, .y = y});
  if (keeps)
    kernels::keep_rows(queue_, {.x = hidden, .gate = {}, .to = tables.hidden, .ring = pages});
}

void PassDraftRunner::write_entries(const StepTables& tables, const Streams& model_streams) {
  const ScratchFrame frame(layers_.scratch());
  Streams streams = model_streams;
  const std::int64_t tokens = streams.residual.dim(0);
  const Tensor pairs = layers_.scratch().take(layers_.activation(), {tokens, 2 * width_});
  find_hidden(streams);
  streams.norm_eps = norm_eps_;
  const PartCall call = first_input(tables, pairs, streams);
  carry_over(call, streams.normed, streams.residual, true);
  join(tables, streams.residual, pairs, streams);
  Ordinals ordinals = layers_.draft_ordinals();
  write_keys(0, call, ordinals);
}

void PassDraftRunner::clear_entries(const StepTables& tables, const Streams& streams) {
  const ScratchFrame frame(layers_.scratch());
  DraftRunner::clear_entries(tables, streams);
  carry_over(layers_.plain_call(tables, {}, layers_.plan().norm_eps),
             repeated(zeros_, layers_.activation(), tables.tokens.dim(0), width_), streams.normed,
             true);
}

void PassDraftRunner::advance(const StepTables& tables) {
  const Tensor& rings = carry().rings;
  carried_with_ring(layers_.plain_call(tables, {}, layers_.plan().norm_eps),
                    Tensor(rings.data, rings.dtype, {0, width_}));
}

Tensor PassDraftRunner::draft(const StepTables& tables, const Tensor& sample_rows,
                              bool is_further) {
  const std::int64_t rows = tables.tokens.dim(0);
  Streams streams = layers_.take_streams(rows, false);
  streams.norm_eps = norm_eps_;
  const Tensor pairs = layers_.scratch().take(layers_.activation(), {rows, 2 * width_});
  Tensor hidden = streams.residual;
  if (is_further) {
    hidden = kept_.tensor(0, layers_.activation(), {rows, width_});
  } else {
    // The hidden states of these tokens are not known yet: no row reads them.
    kernels::embed(
        queue_, {.weight = &layers_.weights().embed, .tokens = tables.tokens, .y = streams.normed});
    carry_over(first_input(tables, pairs, streams), streams.normed, hidden, false);
  }
  join(tables, hidden, pairs, streams);
  // To attention every span is one token, whatever its ring has.
  StepTables single = tables;
  single.single_tokens = true;
  run_layers(single, pairs, streams);
  const std::int64_t sampled = sample_rows.dim(0);
  return logits(streams, sample_rows,
                layers_.scratch().take(layers_.activation(), {sampled, width_}),
                kept_.tensor(0, layers_.activation(), {sampled, width_}));
}

}  // namespace hyb::models
