#include "models/parts/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "kernels/ops/attention.h"
#include "kernels/ops/attention_step.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// attention_step for spans of any lengths.
void attend(const kernels::AttentionStep& op, const PartCall& call) {
  kernels::RopeKvWrite write = write_of(op);
  write.position_of_row = call.tables.position_of_row;
  rope_kv_write(call.queue, write);
  attention(call.queue, attention_of(op));
}

std::span<const double> frequencies_of(const std::optional<Rope>& rope) {
  if (!rope) return {};
  return rope->frequencies;
}

kernels::Weight pack_qkv(const Attention& part, WeightVisitor& visitor, std::int64_t width) {
  const std::int64_t q_rows = part.output_gate ? 2 * part.inner() : part.inner();
  const StoredMatrix q = visitor.stored("attention.q", q_rows, width);
  const StoredMatrix k = visitor.stored("attention.k", part.kv_width(), width);
  const StoredMatrix v = visitor.stored("attention.v", part.kv_width(), width);
  MatrixRows rows(width);
  const std::int64_t dim = part.head_dim;
  const auto append_heads = [&](std::int64_t from, std::int64_t step) {
    for (std::int64_t h = from; h < step * part.heads; h += step) rows.append(q, h * dim, dim);
  };
  if (part.output_gate) {
    append_heads(0, 2);
  } else {
    rows.append(q);
  }
  rows.append(k);
  rows.append(v);
  if (part.output_gate) append_heads(1, 2);
  return visitor.pack(rows);
}

}  // namespace

AttentionWeights Attention::weights(WeightVisitor& visitor, std::int64_t width) const {
  AttentionWeights weights;
  weights.qkv = pack_qkv(*this, visitor, width);
  weights.o = visitor.matrix("attention.o", width, inner());
  if (qk_norm) {
    weights.q_norm = visitor.vector("attention.q_norm", head_dim);
    weights.k_norm = visitor.vector("attention.k_norm", head_dim);
  }
  return weights;
}

PartText Attention::text() const {
  std::string text = fmt::format("{} heads x {}, {} kv heads, ", heads, head_dim, kv_heads);
  text += rope ? fmt::format("rope over {} dims, theta {}", rope->rotary_dim, rope->theta)
               : "no positions";
  if (rope && !rope->scaling.empty()) text += ", " + rope->scaling;
  if (window > 0) text += fmt::format(", window of {}", window);
  if (qk_norm) text += ", q/k norm";
  if (output_gate) text += ", output gate";
  return {.kind = "attention", .text = std::move(text)};
}

std::size_t Attention::scratch_bytes(const StepSetting& setting) const {
  return Scratch::space(setting.activation, setting.limits.tokens, projection()) +
         Scratch::space(setting.activation, setting.limits.tokens, inner());
}

/// Lets threads, or CTAs of a card, share the keys of long sequences.
std::size_t Attention::workspace_bytes(const StepSetting& setting) const {
  // Single-token spans only; a step has at most as many as rows are sampled.
  const std::size_t bytes = kernels::attention_workspace_bytes(
      setting.device, setting.limits.rows, heads, head_dim, setting.limits.positions);
  // Less only means fewer workers per sequence: a large batch has enough work without sharing.
  const std::size_t enough = std::size_t{setting.device == kernels::Device::cpu ? 4U : 64U} << 20;
  return std::min(bytes, enough);
}

void Attention::run(const AttentionWeights& weights, const PartMemory& memory,
                    const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const std::int64_t qkv_width = inner() + 2 * kv_width();
  const Tensor projected = call.scratch.take(call.x.dtype, {tokens, projection()});
  const Tensor mixed = call.scratch.take(call.x.dtype, {tokens, inner()});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.qkv,
                                .y = projected,
                                .normed = call.normed});

  const Tensor gate = output_gate ? projected.columns(qkv_width, inner()) : Tensor();
  const StepTables& tables = call.tables;
  const kernels::AttentionStep op = {.qkv = projected.columns(0, qkv_width),
                                     .pages_of_layer = memory.pages,
                                     .span_begin = tables.span_begin,
                                     .position = tables.position,
                                     .page_begin = tables.page_begin[memory.page_group],
                                     .pages = tables.pages,
                                     .y = mixed,
                                     .heads = heads,
                                     .kv_heads = kv_heads,
                                     .head_dim = head_dim,
                                     .page_tokens = memory.page_tokens,
                                     .scale = scale,
                                     .rotary_dim = rope ? rope->rotary_dim : 0,
                                     .theta = rope ? rope->theta : 1.0,
                                     .frequencies = frequencies_of(rope),
                                     .q_norm = weights.q_norm,
                                     .k_norm = weights.k_norm,
                                     .norm_eps = call.norm_eps,
                                     .norm_one_plus = qk_norm == Norm::rms_1p,
                                     .workspace = memory.workspace,
                                     .window = window,
                                     .gate = gate,
                                     .positions = tables.positions};
  if (tables.single_tokens) {
    attention_step(call.queue, op);
  } else {
    attend(op, call);
  }
  kernels::project(
      call.queue,
      {.x = mixed, .weight = &weights.o, .y = call.residual, .scale = output_scale, .add = true});
}

}  // namespace hyb::models
