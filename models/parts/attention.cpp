#include "models/parts/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "core/base/error.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/attention_step.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// The magnitude of the rotated q and k is given to q, so that keys keep their own.
kernels::QueryScale query_scale_of(const Attention& part) {
  kernels::QueryScale scale = part.query_scale;
  if (part.rope) scale.rotated = static_cast<float>(part.rope->magnitude * part.rope->magnitude);
  return scale;
}

kernels::RopeKvWrite write_of(const Attention& part, const AttentionWeights& weights,
                              const PartMemory& memory, const PartCall& call, const Tensor& qkv) {
  return {.qkv = qkv,
          .position_of_row = call.tables.position_of_row,
          .kv = memory.kv_pages(call.tables),
          .heads = part.heads,
          .kv_heads = part.kv_heads,
          .head_dim = part.head_dim,
          .frequencies = part.rope ? part.rope->frequencies : std::span<const double>(),
          .q_norm = part.whole_norm ? Tensor() : weights.q_norm,
          .k_norm = part.whole_norm ? Tensor() : weights.k_norm,
          .norm_eps = call.norm_eps,
          .norm_one_plus = part.qk_norm == Norm::rms_1p,
          .value_norm = part.value_norm && part.kv_of < 0,
          .queries_only = part.kv_of >= 0,
          .weightless_norm = part.weightless_norm,
          .query_scale = query_scale_of(part)};
}

void pack_qkv(const Attention& part, WeightVisitor& visitor, std::int64_t width,
              AttentionWeights& weights) {
  const std::int64_t q_rows = part.output_gate ? 2 * part.inner() : part.inner();
  const StoredMatrix q = visitor.stored("attention.q", q_rows, width);
  MatrixRows rows(width);
  const std::int64_t dim = part.head_dim;
  const auto append_heads = [&](std::int64_t from, std::int64_t step) {
    for (std::int64_t h = from; h < step * part.heads; h += step) rows.append(q, h * dim, dim);
  };
  const bool is_paired = part.rope && part.rope->neighbours;
  require(!is_paired || (!part.output_gate && !part.qk_norm && !part.biases && part.kv_of < 0),
          "attention: pairs of neighbours");
  const auto append_pairs = [&](const StoredMatrix& from, std::int64_t heads) {
    for (std::int64_t h = 0; h < heads; ++h) rows.append_alternating(from, h * dim, dim);
  };
  if (is_paired) {
    append_pairs(q, part.heads);
  } else if (part.output_gate) {
    append_heads(0, 2);
  } else {
    rows.append(q);
  }
  if (part.kv_of < 0) {
    const StoredMatrix k = visitor.stored("attention.k", part.kv_width(), width);
    const StoredMatrix v =
        part.keys_are_values ? k : visitor.stored("attention.v", part.kv_width(), width);
    if (is_paired) {
      append_pairs(k, part.kv_heads);
    } else {
      rows.append(k);
    }
    rows.append(v);
    if (part.has_keys_alone) {
      MatrixRows kv(width);
      kv.append(k);
      kv.append(v);
      weights.kv = visitor.pack(kv);
    }
  }
  if (part.output_gate) append_heads(1, 2);
  if (part.head_gate) rows.append(visitor.stored("attention.gate", part.heads, width));
  weights.qkv = visitor.pack(rows);
}

void norm_all_heads(const Attention& part, const AttentionWeights& weights, const PartCall& call,
                    const Tensor& projected) {
  const Tensor q = projected.columns(0, part.inner());
  const Tensor k = projected.columns(part.inner(), part.kv_width());
  kernels::rms_norm(call.queue, {.x = q, .weight = weights.q_norm, .y = q, .eps = call.norm_eps});
  kernels::rms_norm(call.queue, {.x = k, .weight = weights.k_norm, .y = k, .eps = call.norm_eps});
}

}  // namespace

RopeParameters RopeParameters::plain(std::int32_t rotary_dim, double theta) {
  RopeParameters rope = {.theta = theta, .frequencies = {}};
  for (std::int32_t i = 0; i < rotary_dim / 2; ++i) {
    rope.frequencies.push_back(std::pow(theta, -2.0 * i / rotary_dim));
  }
  return rope;
}

AttentionWeights Attention::weights(WeightVisitor& visitor, std::int64_t width) const {
  AttentionWeights weights;
  pack_qkv(*this, visitor, reads_pairs ? 2 * width : width, weights);
  weights.o = visitor.matrix("attention.o", width, inner());
  if (qk_norm) {
    weights.q_norm = visitor.vector("attention.q_norm", whole_norm ? inner() : head_dim);
    if (kv_of < 0) {
      weights.k_norm = visitor.vector("attention.k_norm", whole_norm ? kv_width() : head_dim);
    }
  }
  require(!whole_norm || (qk_norm == Norm::rms && kv_of < 0 && !has_keys_alone),
          "attention: a norm over all heads");
  if (sinks) weights.sinks = visitor.vector("attention.sinks", heads);
  if (biases) {
    require(gate_width() == 0 && kv_of < 0 && !keys_are_values, "attention: biases of q, k and v");
    weights.qkv_bias = visitor.vectors({{"attention.q_bias", inner()},
                                        {"attention.k_bias", kv_width()},
                                        {"attention.v_bias", kv_width()}});
  }
  if (output_bias) weights.o_bias = visitor.vector("attention.o_bias", width);
  return weights;
}

PartText Attention::text() const {
  std::string text = fmt::format("{} heads x {}, {} kv heads, ", heads, head_dim, kv_heads);
  text += rope ? fmt::format("rope over {} dims, theta {}", rope->rotary_dim(), rope->theta)
               : "no positions";
  if (rope && !rope->scaling.empty()) text += ", " + rope->scaling;
  if (window > 0) text += fmt::format(", window of {}", window);
  if (chunk > 0) text += fmt::format(", chunks of {}", chunk);
  if (query_scale.beta > 0) {
    text += fmt::format(", queries grow every {} positions", query_scale.period);
  }
  if (weightless_norm) text += ", q/k norm without weights";
  if (score_cap > 0) text += fmt::format(", scores below {}", score_cap);
  if (sinks) text += ", sinks";
  if (value_norm) text += ", v norm";
  if (keys_are_values) text += ", v is k";
  if (kv_of >= 0) text += fmt::format(", keys and values of layer {}", kv_of);
  if (qk_norm) text += whole_norm ? ", q/k norm over all heads" : ", q/k norm";
  if (output_gate) text += ", output gate";
  if (head_gate) text += ", gate per head";
  if (biases) text += output_bias ? ", biases" : ", biases of q, k and v";
  return {.kind = "attention", .text = std::move(text)};
}

/// Without heads of q.
void Attention::write_keys(const AttentionWeights& weights, const PartMemory& memory,
                           const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const Tensor projected = call.scratch.take(call.x.dtype, {call.x.dim(0), 2 * kv_width()});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.kv,
                                .y = projected,
                                .normed = call.normed});
  kernels::RopeKvWrite write = write_of(*this, weights, memory, call, projected);
  write.heads = 0;
  write.q_norm = {};
  write.value_norm = false;
  write.weightless_norm = false;
  write.query_scale = {};
  kernels::rope_kv_write(call.queue, write);
}

std::size_t Attention::scratch_bytes(const StepSetting& setting) const {
  return Scratch::space(setting.activation, setting.limits.step_tokens, projection()) +
         Scratch::space(setting.activation, setting.limits.step_tokens, inner());
}

/// Lets threads, or CTAs of a card, share the keys of long sequences.
std::size_t Attention::workspace_bytes(const StepSetting& setting) const {
  // Single-token spans only; a step has at most as many as rows are sampled.
  return attention_workspace(
      setting, kernels::attention_workspace_bytes(setting.device, setting.limits.rows, heads,
                                                  head_dim, setting.limits.positions, reach()));
}

void Attention::run(const AttentionWeights& weights, const PartMemory& memory,
                    const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor projected = call.scratch.take(call.x.dtype, {tokens, projection()});
  const Tensor mixed = call.scratch.take(call.x.dtype, {tokens, inner()});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.qkv,
                                .y = projected,
                                .normed = call.normed,
                                .bias = weights.qkv_bias});
  if (call.adapter != nullptr) add_adapter(call, projected);
  if (whole_norm) norm_all_heads(*this, weights, call, projected);

  const kernels::RopeKvWrite write =
      write_of(*this, weights, memory, call, projected.columns(0, qkv_width()));
  kernels::PagedAttention read = {
      .q = projected.columns(0, inner()),
      .kv = write.kv,
      .y = mixed,
      .heads = heads,
      .kv_heads = kv_heads,
      .head_dim = head_dim,
      .scale = scale,
      .workspace = memory.workspace,
      .window = window,
      .chunk = chunk,
      .softcap = score_cap,
      .sinks = weights.sinks,
      .gate = gate_width() > 0 ? projected.columns(qkv_width(), gate_width()) : Tensor(),
      .positions = call.tables.positions};
  if (call.tables.single_tokens) {
    attention_step(call.queue, write, read);
  } else {
    if (sees_block) read.kv.position = call.tables.block_end;  // of single tokens, in blocks
    rope_kv_write(call.queue, write);
    paged_attention(call.queue, read);
  }
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.o,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add,
                                .bias = weights.o_bias});
}

}  // namespace hyb::models
