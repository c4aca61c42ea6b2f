#include "kernels/ops/attention_step.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"

namespace hyb::kernels {

/// A span's position is that of its only token.
RopeKvWrite write_of(const AttentionStep& op) {
  return {.qkv = op.qkv,
          .position_of_row = op.position,
          .pages_of_layer = op.pages_of_layer,
          .span_begin = op.span_begin,
          .position = op.position,
          .page_begin = op.page_begin,
          .pages = op.pages,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .page_tokens = op.page_tokens,
          .rotary_dim = op.rotary_dim,
          .theta = op.theta,
          .frequencies = op.frequencies,
          .q_norm = op.q_norm,
          .k_norm = op.k_norm,
          .norm_eps = op.norm_eps,
          .norm_one_plus = op.norm_one_plus,
          .value_norm = op.value_norm,
          .queries_only = op.queries_only,
          .weightless_norm = op.weightless_norm,
          .query_scale = op.query_scale};
}

Attention attention_of(const AttentionStep& op) {
  return {.q = op.qkv.columns(0, op.heads * op.head_dim),
          .pages_of_layer = op.pages_of_layer,
          .span_begin = op.span_begin,
          .position = op.position,
          .page_begin = op.page_begin,
          .pages = op.pages,
          .y = op.y,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .page_tokens = op.page_tokens,
          .scale = op.scale,
          .workspace = op.workspace,
          .window = op.window,
          .chunk = op.chunk,
          .softcap = op.softcap,
          .sinks = op.sinks,
          .gate = op.gate,
          .positions = op.positions};
}

void attention_step(Queue& queue, const AttentionStep& op) {
  const Check rules("attention_step", queue.device());
  const std::int64_t spans = rules.spans(op.span_begin, op.qkv.dim(0));
  rules.that(spans == op.qkv.dim(0), "every span has one token", spans);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) {
      check(write_of(op), Device::cuda);  // its route calls neither of the two
      check(attention_of(op), Device::cuda);
      return cuda::attention_step(queue.stream(), op);
    }
  }
  rope_kv_write(queue, write_of(op));
  attention(queue, attention_of(op));
}

}  // namespace hyb::kernels
