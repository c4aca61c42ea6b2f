#include "kernels/ops/attention.h"

#include "kernels/linear/project.h"
#include "kernels/ops/rope_kv_write.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::int64_t inner(const Attention& part) { return std::int64_t{part.heads} * part.head_dim; }
std::int64_t kv(const Attention& part) { return std::int64_t{part.kv_heads} * part.head_dim; }

}  // namespace

void run(const Attention& part, const AttentionWeights& weights, const AttentionMemory& memory,
         const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor qkv = call.scratch.take(call.x.dtype, {tokens, inner(part) + 2 * kv(part)});
  const Tensor mixed = call.scratch.take(call.x.dtype, {tokens, inner(part)});
  kernels::project(
      call.queue,
      {.x = call.x, .norm = call.norm, .weight = &weights.qkv, .y = qkv, .normed = call.normed});

  const StepTables& tables = call.tables;
  const Tensor& page_begin = tables.page_begin[memory.group];
  kernels::rope_kv_write(call.queue, {.qkv = qkv,
                                      .position_of_row = tables.position_of_row,
                                      .pages_of_layer = memory.arena,
                                      .span_begin = tables.span_begin,
                                      .position = tables.position,
                                      .page_begin = page_begin,
                                      .pages = tables.pages,
                                      .heads = part.heads,
                                      .kv_heads = part.kv_heads,
                                      .head_dim = part.head_dim,
                                      .page_tokens = memory.page_tokens,
                                      .rotary_dim = part.rope ? part.rope->rotary_dim : 0,
                                      .theta = part.rope ? part.rope->theta : 1.0});
  kernels::attention(call.queue, {.q = qkv.columns(0, inner(part)),
                                  .pages_of_layer = memory.arena,
                                  .span_begin = tables.span_begin,
                                  .position = tables.position,
                                  .page_begin = page_begin,
                                  .pages = tables.pages,
                                  .y = mixed,
                                  .heads = part.heads,
                                  .kv_heads = part.kv_heads,
                                  .head_dim = part.head_dim,
                                  .page_tokens = memory.page_tokens,
                                  .scale = part.scale,
                                  .workspace = memory.workspace});
  kernels::project(call.queue, {.x = mixed,
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
  return bytes(inner(part) + 2 * kv(part)) + bytes(inner(part));
}

}  // namespace hyb::models
