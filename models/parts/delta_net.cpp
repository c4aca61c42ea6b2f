#include "models/parts/delta_net.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/ops/conv.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/recurrent_step.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Rows stored per key head, [first | second | ...] of the given lengths each, as all firsts, then
/// all seconds, ...
void append_ungrouped(MatrixRows& rows, const StoredMatrix& stored, std::int64_t groups,
                      std::initializer_list<std::int64_t> lengths) {
  const std::int64_t group = stored.rows / groups;
  std::int64_t offset = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t g = 0; g < groups; ++g) rows.append(stored, g * group + offset, length);
    offset += length;
  }
}

/// As Qwen3-Next stores them: qkvz and ba, key head by key head.
void pack_grouped(const DeltaNet& part, WeightVisitor& visitor, std::int64_t width,
                  DeltaNetWeights& weights) {
  const std::int64_t group_values = part.values() / part.key_heads;
  const std::int64_t group_heads = part.value_heads / part.key_heads;
  MatrixRows qkvz(width), ba(width);
  append_ungrouped(qkvz, visitor.stored("delta.qkvz", part.conv_dim() + part.values(), width),
                   part.key_heads, {part.key_dim, part.key_dim, group_values, group_values});
  append_ungrouped(ba, visitor.stored("delta.ba", 2 * std::int64_t{part.value_heads}, width),
                   part.key_heads, {group_heads, group_heads});
  weights.qkvz = visitor.pack(qkvz);
  weights.ba = visitor.pack(ba, Packing::activation);
}

/// Between the projections: `x` goes through the convolution and, with `b` and `a`, the delta rule.
struct Mixed {
  Tensor x, b, a, convolved, y;
};

/// One more token of every sequence.
void step(const DeltaNet& part, const DeltaNetWeights& weights, const PartMemory& memory,
          const PartCall& call, const Mixed& mixed) {
  kernels::delta_step(call.queue, {.x = mixed.x,
                                   .b = mixed.b,
                                   .a = mixed.a,
                                   .conv_weight = weights.conv_weight,
                                   .conv_bias = {},
                                   .windows = memory.windows,
                                   .a_log = weights.a_log,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .read_slot = call.tables.read_slot,
                                   .write_slot = call.tables.write_slot,
                                   .y = mixed.y,
                                   .convolved = mixed.convolved,
                                   .semaphores = memory.semaphores.rows(0, mixed.x.dim(0)),
                                   .key_heads = part.key_heads});
}

void mix(const DeltaNet& part, const DeltaNetWeights& weights, const PartMemory& memory,
         const PartCall& call, const Mixed& mixed) {
  if (call.tables.single_tokens) return step(part, weights, memory, call, mixed);
  const StepTables& tables = call.tables;
  kernels::causal_conv(call.queue, {.x = mixed.x,
                                    .weight = weights.conv_weight,
                                    .bias = {},
                                    .windows = memory.windows,
                                    .span_begin = tables.span_begin,
                                    .read_slot = tables.read_slot,
                                    .write_slot = tables.write_slot,
                                    .y = mixed.convolved});
  kernels::delta_rule(call.queue, {.x = mixed.convolved,
                                   .b = mixed.b,
                                   .a = mixed.a,
                                   .a_log = weights.a_log,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .span_begin = tables.span_begin,
                                   .read_slot = tables.read_slot,
                                   .write_slot = tables.write_slot,
                                   .y = mixed.y,
                                   .workspace = memory.workspace,
                                   .key_heads = part.key_heads});
}

}  // namespace

DeltaNetWeights DeltaNet::weights(WeightVisitor& visitor, std::int64_t width) const {
  DeltaNetWeights weights;
  const std::int64_t heads = value_heads;
  if (visitor.is_fused("delta.qkvz", "delta.qkv")) {
    pack_grouped(*this, visitor, width, weights);
  } else {
    weights.qkvz = visitor.stacked({{"delta.qkv", conv_dim()}, {"delta.z", values()}}, width);
    weights.ba =
        visitor.stacked({{"delta.b", heads}, {"delta.a", heads}}, width, Packing::activation);
  }
  weights.conv_weight = visitor.taps("delta.conv_weight", conv_dim(), conv_width);
  weights.a_log = visitor.vector("delta.a_log", heads);
  weights.dt_bias = visitor.vector("delta.dt_bias", heads);
  weights.norm = visitor.vector("delta.norm", value_dim, heads);
  weights.out_proj = visitor.matrix("delta.out_proj", width, values());
  return weights;
}

MemoryShape DeltaNet::memory() const {
  return {.state = StateShape{.conv_channels = conv_dim(),
                              .conv_width = conv_width,
                              .heads = value_heads,
                              .rows = key_dim,
                              .columns = value_dim}};
}

/// Chunks of Q = 64: 2 Q heads (3 K + 2 V) + 6 heads K V per token.
PartWork DeltaNet::work() const {
  const double heads = value_heads, keys = key_dim, values = value_dim;
  return {.token_flops = 6 * heads * keys * values,
          .chunk_flops = 2 * heads * (3 * keys + 2 * values),
          .chunk_tokens = 64};
}

PartText DeltaNet::text() const {
  return {.kind = "delta",
          .text = fmt::format("gated delta net, {} value heads, {} key heads, {} x {}, "
                              "convolution of {}",
                              value_heads, key_heads, key_dim, value_dim, conv_width)};
}

std::size_t DeltaNet::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t tokens = setting.limits.tokens;
  return Scratch::space(setting.activation, tokens, conv_dim() + values()) +
         Scratch::space(setting.activation, tokens, 2 * std::int64_t{value_heads}) +
         Scratch::space(setting.activation, tokens, conv_dim()) +
         Scratch::space(setting.activation, tokens, values());
}

std::size_t DeltaNet::workspace_bytes(const StepSetting& setting) const {
  return kernels::delta_rule_workspace_bytes(setting.device, setting.limits.tokens,
                                             setting.limits.spans, value_heads);
}

void DeltaNet::run(const DeltaNetWeights& weights, const PartMemory& memory,
                   const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const std::int64_t heads = value_heads;
  const Tensor qkvz = call.scratch.take(dtype, {tokens, conv_dim() + values()});
  const Tensor ba = call.scratch.take(dtype, {tokens, 2 * heads});
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim()});
  const Tensor mixed = call.scratch.take(dtype, {tokens, values()});

  for (const auto& [weight, y] : {std::pair(&weights.qkvz, qkvz), std::pair(&weights.ba, ba)}) {
    kernels::project(
        call.queue,
        {.x = call.x, .norm = call.norm, .weight = weight, .y = y, .normed = call.normed});
  }
  mix(*this, weights, memory, call,
      {.x = qkvz.columns(0, conv_dim()),
       .b = ba.columns(0, heads),
       .a = ba.columns(heads, heads),
       .convolved = convolved,
       .y = mixed});
  kernels::project(call.queue, {.x = mixed,
                                .norm = {.weight = weights.norm,
                                         .eps = call.norm_eps,
                                         .gate = qkvz.columns(conv_dim(), values()),
                                         .groups = heads,
                                         .norm_first = true},
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = output_scale,
                                .add = true});
}

}  // namespace hyb::models
