#include "kernels/linear/project.h"
#include "kernels/ops/attention_step.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::int64_t inner(const Attention& part) { return std::int64_t{part.heads} * part.head_dim; }
std::int64_t kv(const Attention& part) { return std::int64_t{part.kv_heads} * part.head_dim; }
/// q | k | v, and with an output gate | gate.
std::int64_t projection(const Attention& part) {
  return (part.output_gate ? 2 : 1) * inner(part) + 2 * kv(part);
}

/// attention_step for spans of any lengths.
void attend(const kernels::AttentionStep& op, const PartCall& call) {
  kernels::RopeKvWrite write = write_of(op);
  write.position_of_row = call.tables.position_of_row;
  rope_kv_write(call.queue, write);
  attention(call.queue, attention_of(op));
}

}  // namespace

void run(const Attention& part, const AttentionWeights& weights, const AttentionMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor qkv = call.scratch.take(call.x.dtype, {tokens, projection(part)});
  const Tensor mixed = call.scratch.take(call.x.dtype, {tokens, inner(part)});
  kernels::project(
      call.queue,
      {.x = call.x, .norm = call.norm, .weight = &weights.qkv, .y = qkv, .normed = call.normed});

  const Tensor gate =
      part.output_gate ? qkv.columns(inner(part) + 2 * kv(part), inner(part)) : Tensor();

  const StepTables& tables = call.tables;
  const kernels::AttentionStep op = {.qkv = qkv.columns(0, inner(part) + 2 * kv(part)),
                                     .pages_of_layer = memory.arena,
                                     .span_begin = tables.span_begin,
                                     .position = tables.position,
                                     .page_begin = tables.page_begin[memory.group],
                                     .pages = tables.pages,
                                     .y = mixed,
                                     .heads = part.heads,
                                     .kv_heads = part.kv_heads,
                                     .head_dim = part.head_dim,
                                     .page_tokens = memory.page_tokens,
                                     .scale = part.scale,
                                     .rotary_dim = part.rope ? part.rope->rotary_dim : 0,
                                     .theta = part.rope ? part.rope->theta : 1.0,
                                     .q_norm = weights.q_norm,
                                     .k_norm = weights.k_norm,
                                     .norm_eps = call.norm_eps,
                                     .norm_one_plus = part.qk_norm == Norm::rms_1p,
                                     .workspace = memory.workspace,
                                     .gate = gate};
  if (tables.single_tokens) {
    attention_step(call.queue, op);
  } else {
    attend(op, call);
  }
  kernels::project(call.queue, {.x = mixed,
                                .weight = &weights.o,
                                .y = call.residual,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const Attention& part, std::int64_t tokens, DType activation) {
  return Scratch::space(activation, tokens, projection(part)) +
         Scratch::space(activation, tokens, inner(part));
}

}  // namespace hyb::models
