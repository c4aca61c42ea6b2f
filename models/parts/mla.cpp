#include "models/parts/mla.h"

#include <fmt/format.h>

#include "kernels/linear/linear.h"
#include "kernels/ops/latent_attention.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Appends a head's rows [plain | turned], or all heads' one, the turned ones first; they are
/// published as neighbours or as halves.
void append_turned_first(const Mla& part, MatrixRows& rows, const StoredMatrix& from,
                         std::int64_t first, std::int64_t plain) {
  if (part.rope && part.rope->neighbours) {
    rows.append_alternating(from, first + plain, part.turned_width);
  } else {
    rows.append(from, first + plain, part.turned_width);
  }
  rows.append(from, first, plain);
}

void append_queries(const Mla& part, MatrixRows& rows, const StoredMatrix& q) {
  for (std::int64_t h = 0; h < part.heads; ++h) {
    append_turned_first(part, rows, q, h * part.query_dim(), part.plain_dim);
  }
}

void turn(const Mla& part, const PartCall& call, const Tensor& x, std::int64_t heads) {
  if (!part.rope) return;
  kernels::rope(call.queue, {.x = x,
                             .position_of_row = call.tables.position_of_row,
                             .heads = heads,
                             .head_dim = x.dim(1) / heads,
                             .frequencies = part.rope->frequencies});
}

}  // namespace

MlaWeights Mla::weights(WeightVisitor& visitor, std::int64_t width) const {
  MlaWeights weights;
  MatrixRows rows(width);
  if (q_rank > 0) {
    rows.append(visitor.stored("mla.q_a", q_rank, width));
    weights.q_norm = visitor.vector("mla.q_norm", q_rank);
    MatrixRows q_b(q_rank);
    append_queries(*this, q_b, visitor.stored("mla.q_b", queries(), q_rank));
    weights.q_b = visitor.pack(q_b);
  } else {
    append_queries(*this, rows, visitor.stored("mla.q", queries(), width));
  }
  append_turned_first(*this, rows, visitor.stored("mla.kv_a", row_width(), width), 0, latent_width);
  if (head_gate) rows.append(visitor.stored("mla.gate", heads, width));
  weights.in_proj = visitor.pack(rows);
  weights.kv_norm = visitor.vector("mla.kv_norm", latent_width);
  const std::int64_t both = plain_dim + value_dim;
  // GGUF files have what this makes of it.
  const bool is_whole = visitor.is_fused("mla.kv_b", "mla.k_b");
  const StoredMatrix k_b = is_whole
                               ? visitor.stored("mla.kv_b", heads * both, latent_width)
                               : visitor.stored_experts("mla.k_b", heads, latent_width, plain_dim);
  const StoredMatrix v_b =
      is_whole ? k_b : visitor.stored_experts("mla.v_b", heads, value_dim, latent_width);
  MatrixRows to_latent(plain_dim, heads), to_values(latent_width, heads);
  for (std::int64_t h = 0; h < heads; ++h) {
    if (is_whole) {
      to_latent.append_transposed(k_b, h * both, plain_dim);
      to_values.append(v_b, h * both + plain_dim, value_dim);
    } else {
      to_latent.append(k_b, h * latent_width, latent_width);
      to_values.append(v_b, h * value_dim, value_dim);
    }
  }
  weights.to_latent = visitor.pack(to_latent);
  weights.to_values = visitor.pack(to_values);
  weights.o = visitor.matrix("mla.o", width, values());
  return weights;
}

/// A pair of a query and a key costs a row's width and a latent's.
PartWork Mla::work() const {
  return {.attention_width = heads * (row_width() + latent_width) / 2.0};
}

PartText Mla::text() const {
  std::string text = fmt::format("{} heads x {} + {}, values of {}, latents of {}", heads,
                                 plain_dim, turned_width, value_dim, latent_width);
  if (q_rank > 0) text += fmt::format(", queries of {}", q_rank);
  text += rope ? fmt::format(", rope over {} dims, theta {}", rope->rotary_dim(), rope->theta)
               : ", no positions";
  if (head_gate) text += ", gate per head";
  return {.kind = "mla", .text = std::move(text)};
}

std::size_t Mla::scratch_bytes(const StepSetting& setting) const {
  const auto space = [&](std::int64_t columns) {
    return Scratch::space(setting.activation, setting.limits.step_tokens, columns);
  };
  return space(projection()) + space(q_rank > 0 ? queries() : 0) + 2 * space(latents()) +
         space(values());
}

std::size_t Mla::workspace_bytes(const StepSetting& setting) const {
  return attention_workspace(
      setting, kernels::latent_workspace_bytes(setting.device, setting.limits.rows, heads,
                                               setting.limits.positions));
}

void Mla::run(const MlaWeights& weights, const PartMemory& memory, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const auto take = [&](std::int64_t columns) {
    return call.scratch.take(call.x.dtype, {tokens, columns});
  };
  const Tensor projected = take(projection());
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  const Tensor row = projected.columns(first_queries(), row_width());
  Tensor gate;
  if (head_gate) gate = projected.columns(first_queries() + row_width(), heads);
  const Tensor own = row.columns(turned_width, latent_width);
  kernels::rms_norm(call.queue, {.x = own, .weight = weights.kv_norm, .y = own, .eps = norm_eps});
  turn(*this, call, row, 1);
  Tensor q = projected.columns(0, first_queries());
  if (q_rank > 0) {
    const Tensor low = q;
    q = take(queries());
    kernels::project(call.queue, {.x = low,
                                  .norm = {.weight = weights.q_norm, .eps = norm_eps},
                                  .weight = &weights.q_b,
                                  .y = q,
                                  .normed = low});
  }
  turn(*this, call, q, heads);
  const Tensor to_latent = take(latents()), found = take(latents()), mixed = take(values());
  kernels::linear_heads(
      call.queue, {.x = q, .first = turned_width, .weight = &weights.to_latent, .y = to_latent});
  const kernels::KvPages kv = memory.kv_pages(call.tables);
  kernels::latent_write(call.queue, {.rows = row, .kv = kv});
  kernels::latent_attention(call.queue, {.turned = q,
                                         .latent = to_latent,
                                         .kv = kv,
                                         .y = found,
                                         .shape = *this,
                                         .gate = gate,
                                         .workspace = memory.workspace,
                                         .positions = call.tables.positions});
  kernels::linear_heads(call.queue, {.x = found, .weight = &weights.to_values, .y = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.o,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

}  // namespace hyb::models
