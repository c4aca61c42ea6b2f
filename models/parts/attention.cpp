#include "kernels/ops/attention.h"

#include "kernels/linear/linear.h"
#include "kernels/ops/kv_write.h"
#include "kernels/ops/rope.h"
#include "models/parts/part.h"

namespace hyb::models {
namespace {

using kernels::Tensor;

void turn(const Attention& part, std::int64_t heads, const Tensor& x, const PartCall& call) {
  if (!part.rope) return;
  kernels::rope(call.queue, {.x = x,
                             .position_of_row = call.tables.position_of_row,
                             .heads = heads,
                             .head_dim = part.head_dim,
                             .rotary_dim = part.rope->rotary_dim,
                             .theta = part.rope->theta});
}

}  // namespace

void run(const Attention& part, const AttentionWeights& weights, const AttentionMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t inner = std::int64_t{part.heads} * part.head_dim;
  const std::int64_t kv = std::int64_t{part.kv_heads} * part.head_dim;
  const Tensor q = call.scratch.take(dtype, {tokens, inner});
  const Tensor k = call.scratch.take(dtype, {tokens, kv});
  const Tensor v = call.scratch.take(dtype, {tokens, kv});
  const Tensor mixed = call.scratch.take(dtype, {tokens, inner});

  kernels::linear(call.queue, {.x = call.x, .weight = &weights.q, .y = q});
  kernels::linear(call.queue, {.x = call.x, .weight = &weights.k, .y = k});
  kernels::linear(call.queue, {.x = call.x, .weight = &weights.v, .y = v});
  turn(part, part.heads, q, call);
  turn(part, part.kv_heads, k, call);

  const StepTables& tables = call.tables;
  const PageTables& paging = tables.groups[memory.group];
  kernels::kv_write(call.queue, {.k = k,
                                 .v = v,
                                 .pages_of_layer = memory.arena,
                                 .span_begin = tables.span_begin,
                                 .position = tables.position,
                                 .page_begin = paging.page_begin,
                                 .pages = paging.pages,
                                 .kv_heads = part.kv_heads,
                                 .head_dim = part.head_dim,
                                 .page_tokens = memory.page_tokens});
  kernels::attention(call.queue, {.q = q,
                                  .pages_of_layer = memory.arena,
                                  .span_begin = tables.span_begin,
                                  .position = tables.position,
                                  .page_begin = paging.page_begin,
                                  .pages = paging.pages,
                                  .y = mixed,
                                  .heads = part.heads,
                                  .kv_heads = part.kv_heads,
                                  .head_dim = part.head_dim,
                                  .page_tokens = memory.page_tokens,
                                  .scale = part.scale,
                                  .workspace = memory.workspace});
  kernels::linear(call.queue, {.x = mixed,
                               .weight = &weights.o,
                               .y = call.residual,
                               .scale = call.residual_scale,
                               .add = true});
}

std::size_t scratch_bytes(const Attention& part, std::int64_t tokens, std::int64_t,
                          DType activation) {
  const auto bytes = [&](std::int64_t columns) {
    return Scratch::padded(static_cast<std::size_t>(tokens * columns) * size_of(activation));
  };
  return 2 * bytes(std::int64_t{part.heads} * part.head_dim) +
         2 * bytes(std::int64_t{part.kv_heads} * part.head_dim);
}

}  // namespace hyb::models
