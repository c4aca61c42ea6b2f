#include "models/parts/ssd.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops/conv.h"
#include "kernels/ops/draft_ring.h"
#include "kernels/ops/gated_activation.h"
#include "kernels/ops/recurrent_step.h"
#include "kernels/ops/scale_columns.h"
#include "kernels/ops/ssd.h"
#include "models/parts/recurrent_spans.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Between the projections: what goes through the convolution and the recurrence.
struct SsdActivations {
  Tensor x, dt, convolved, y;
};

/// One more token of every sequence.
void step(const Ssd& part, const SsdWeights& weights, const PartMemory& memory,
          const PartCall& call, const SsdActivations& mixed) {
  kernels::mamba_step(call.queue, {.x = mixed.x,
                                   .dt = mixed.dt,
                                   .conv_weight = weights.conv_weight,
                                   .conv_bias = weights.conv_bias,
                                   .windows = memory.windows,
                                   .rate = weights.rate,
                                   .d = weights.d,
                                   .dt_bias = weights.dt_bias,
                                   .state = memory.states,
                                   .read_slot = call.tables.read_slot,
                                   .write_slot = call.tables.write_slot,
                                   .y = mixed.y,
                                   .convolved = mixed.convolved,
                                   .semaphores = memory.semaphores.rows(0, mixed.x.dim(0)),
                                   .groups = part.groups,
                                   .dt_min = part.dt_min,
                                   .dt_max = part.dt_max});
}

void scan(const Ssd& part, const SsdWeights& weights, const PartMemory& memory,
          kernels::Queue& queue, const RecurrentSpans& spans, const SsdActivations& mixed) {
  kernels::causal_conv(queue, {.x = mixed.x,
                               .weight = weights.conv_weight,
                               .bias = weights.conv_bias,
                               .windows = memory.windows,
                               .span_begin = spans.span_begin,
                               .read_slot = spans.read_slot,
                               .write_slot = spans.write_slot,
                               .y = mixed.convolved});
  kernels::ssd(queue, {.x = mixed.convolved,
                       .dt = mixed.dt,
                       .rate = weights.rate,
                       .d = weights.d,
                       .dt_bias = weights.dt_bias,
                       .state = memory.states,
                       .span_begin = spans.span_begin,
                       .read_slot = spans.read_slot,
                       .write_slot = spans.write_slot,
                       .y = mixed.y,
                       .workspace = memory.workspace,
                       .token_by_token = spans.token_by_token,
                       .groups = part.groups,
                       .dt_min = part.dt_min,
                       .dt_max = part.dt_max});
}

/// The spans of the ring tables, of a step's tokens or of none, whose x B C and dt are `own`; y of
/// all their rows.
Tensor scan_ring(const Ssd& part, const SsdWeights& weights, const PartMemory& memory,
                 const PartCall& call, const Tensor& own) {
  const RingTables& ring = call.tables.ring;
  const std::int64_t rows = ring.from.dim(0);
  const DType dtype = memory.rings.dtype;
  const Tensor inputs = call.scratch.take(dtype, {rows, part.ring_width()});
  const SsdActivations mixed = {.x = inputs.columns(0, part.conv_dim()),
                                .dt = inputs.columns(part.conv_dim(), part.heads),
                                .convolved = call.scratch.take(dtype, {rows, part.conv_dim()}),
                                .y = call.scratch.take(dtype, {rows, part.inner()})};
  kernels::extend_rows(call.queue,
                       {.x = own, .ring = memory.rings, .from = ring.from, .y = inputs});
  scan(part, weights, memory, call.queue, RecurrentSpans::with_ring(ring), mixed);
  return mixed.y;
}

/// The spans of a step in the ring tables, whose drafts are kept.
Tensor verify(const Ssd& part, const SsdWeights& weights, const PartMemory& memory,
              const PartCall& call, const Tensor& own) {
  const Tensor y = scan_ring(part, weights, memory, call, own);
  kernels::keep_rows(call.queue,
                     {.x = own, .gate = {}, .to = call.tables.ring.kept, .ring = memory.rings});
  return y;
}

/// `inputs`: x B C and dt.
void mix(const Ssd& part, const SsdWeights& weights, const PartMemory& memory, const PartCall& call,
         const Tensor& inputs, const Tensor& convolved, const Tensor& y) {
  const auto mixed = [&](std::int64_t tokens) {
    return SsdActivations{.x = inputs.rows(0, tokens).columns(0, part.conv_dim()),
                          .dt = inputs.rows(0, tokens).columns(part.conv_dim(), part.heads),
                          .convolved = convolved.rows(0, tokens),
                          .y = y.rows(0, tokens)};
  };
  const StepTables& tables = call.tables;
  if (tables.single_tokens) return step(part, weights, memory, call, mixed(inputs.dim(0)));
  run_spans(
      call, y,
      [&](std::int64_t tokens) {
        const RecurrentSpans spans = RecurrentSpans::without_ring(tables);
        scan(part, weights, memory, call.queue, spans, mixed(tokens));
      },
      [&](std::int64_t first, std::int64_t tokens) {
        return verify(part, weights, memory, call, inputs.rows(first, tokens));
      });
}

void scale_projection(const Ssd& part, const PartCall& call, const Tensor& projected) {
  const auto& scales = part.projection_scales;
  if (std::ranges::count(scales, 1.0F) == std::ssize(scales)) return;
  const std::int64_t bc = std::int64_t{part.groups} * part.state_dim;
  const std::array<kernels::ColumnSegment, 5> segments = {{{part.inner(), scales[0]},
                                                           {part.inner(), scales[1]},
                                                           {bc, scales[2]},
                                                           {bc, scales[3]},
                                                           {part.heads, scales[4]}}};
  kernels::scale_columns(call.queue, {.x = projected, .segments = segments});
}

}  // namespace

SsdWeights Ssd::weights(WeightVisitor& visitor, std::int64_t width) const {
  SsdWeights weights;
  weights.in_proj = visitor.matrix("ssd.in_proj", projection(), width);
  weights.conv_weight = visitor.taps("ssd.conv_weight", conv_dim(), conv_width);
  if (conv_bias) weights.conv_bias = visitor.vector("ssd.conv_bias", conv_dim());
  weights.rate = visitor.rates("ssd.rate", "ssd.a_log", heads);
  weights.d = visitor.vector("ssd.d", heads);
  weights.dt_bias = visitor.vector("ssd.dt_bias", heads);
  if (gate != SsdGate::gate_only) weights.norm = visitor.vector("ssd.norm", inner());
  weights.out_proj = visitor.matrix("ssd.out_proj", width, inner());
  return weights;
}

MemoryShape Ssd::memory() const {
  const HeadNumbers x = {Division::heads, heads, head_dim};
  const HeadNumbers b = {Division::groups, groups, state_dim}, c = b;
  return {.state = StateShape{.channels = {x, b, c},
                              .conv_width = conv_width,
                              .heads = heads,
                              .rows = head_dim,
                              .columns = state_dim,
                              .inputs = {{Division::heads, heads, 1}}}};
}

/// Chunks of Q = 128: 2 Q groups N + 2 Q heads P + 4 heads P N per token.
PartWork Ssd::work() const {
  const double states = state_dim;
  return {.token_flops = 4.0 * inner() * states,
          .chunk_flops = 2.0 * groups * states + 2.0 * inner(),
          .chunk_tokens = 128};
}

PartText Ssd::text() const {
  std::string text =
      fmt::format("Mamba-2, {} heads x {} x {}, {} group{}, convolution of {}", heads, head_dim,
                  state_dim, groups, groups == 1 ? "" : "s", conv_width);
  if (gate == SsdGate::norm_then_gate) text += ", norm before gate";
  if (gate == SsdGate::gate_only) text += ", no norm";
  return {.kind = "ssd", .text = std::move(text)};
}

std::size_t Ssd::scratch_bytes(const StepSetting& setting) const {
  const std::int64_t tokens = setting.limits.step_tokens, ring_rows = setting.limits.ring_rows;
  return Scratch::space(setting.activation, tokens, projection()) +
         Scratch::space(setting.activation, tokens, conv_dim()) +
         Scratch::space(setting.activation, tokens, inner()) +
         Scratch::space(setting.activation, ring_rows, ring_width()) +
         Scratch::space(setting.activation, ring_rows, conv_dim()) +
         Scratch::space(setting.activation, ring_rows, inner());
}

std::size_t Ssd::workspace_bytes(const StepSetting& setting) const {
  return kernels::ssd_workspace_bytes(setting.device, heads, head_dim, state_dim);
}

void Ssd::run(const SsdWeights& weights, const PartMemory& memory, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const DType dtype = call.x.dtype;
  const Tensor projected = call.scratch.take(dtype, {tokens, projection()});
  const Tensor convolved = call.scratch.take(dtype, {tokens, conv_dim()});
  const Tensor mixed = call.scratch.take(dtype, {tokens, inner()});

  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  scale_projection(*this, call, projected);
  mix(*this, weights, memory, call, projected.columns(inner(), ring_width()), convolved, mixed);
  const Tensor z = projected.columns(0, inner());
  kernels::InputNorm norm = {};
  if (gate == SsdGate::gate_only) {
    kernels::gated_activation(call.queue, {.x = z, .y = mixed, .up = mixed});
  } else {
    norm = {.weight = weights.norm,
            .eps = call.norm_eps,
            .gate = z,
            .groups = norm_groups,
            .norm_first = gate == SsdGate::norm_then_gate};
  }
  kernels::project(call.queue, {.x = mixed,
                                .norm = norm,
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = output_scale,
                                .add = call.add});
}

void Ssd::advance(const SsdWeights& weights, const PartMemory& memory, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  scan_ring(*this, weights, memory, call, Tensor(nullptr, memory.rings.dtype, {0, ring_width()}));
}

}  // namespace hyb::models
