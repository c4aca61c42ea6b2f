#include "models/parts/ssd.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops/gated_activation.h"
#include "kernels/ops/scale_columns.h"
#include "models/parts/recurrence.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

Recurrence<kernels::MambaScan> recurrence_of(const Ssd& part, const SsdWeights& weights) {
  kernels::MambaScan op;
  op.rate = weights.rate;
  op.d = weights.d;
  op.dt_bias = weights.dt_bias;
  op.shape = part.shape;
  return {.widths = part.widths(),
          .conv_weight = weights.conv_weight,
          .conv_bias = weights.conv_bias,
          .op = op,
          .scan = kernels::mamba_scan,
          .step = kernels::mamba_step};
}

void scale_projection(const Ssd& part, const PartCall& call, const Tensor& projected) {
  const auto& scales = part.projection_scales;
  if (std::ranges::count(scales, 1.0F) == std::ssize(scales)) return;
  const std::int64_t bc = std::int64_t{part.shape.groups} * part.state_dim;
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
  weights.conv_weight = visitor.taps({{"ssd.conv_weight", conv_dim()}}, conv_width);
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
  const HeadNumbers b = {Division::groups, shape.groups, state_dim}, c = b;
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
          .chunk_flops = 2.0 * shape.groups * states + 2.0 * inner(),
          .chunk_tokens = 128};
}

PartText Ssd::text() const {
  std::string text =
      fmt::format("Mamba-2, {} heads x {} x {}, {} group{}, convolution of {}", heads, head_dim,
                  state_dim, shape.groups, shape.groups == 1 ? "" : "s", conv_width);
  if (gate == SsdGate::norm_then_gate) text += ", norm before gate";
  if (gate == SsdGate::gate_only) text += ", no norm";
  return {.kind = "ssd", .text = std::move(text)};
}

std::size_t Ssd::scratch_bytes(const StepSetting& setting) const {
  return widths().scratch_bytes(setting, projection());
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
  recurrence_of(*this, weights)
      .run(memory, call,
           {.x = projected.columns(inner(), conv_dim()),
            .controls = projected.columns(inner() + conv_dim(), heads)},
           convolved, mixed);
  const Tensor z = projected.columns(0, inner());
  kernels::InputNorm norm = {};
  if (gate == SsdGate::gate_only) {
    kernels::gated_activation(call.queue, {.x = z, .y = mixed, .up = mixed});
  } else {
    norm = {.weight = weights.norm,
            .eps = norm_eps > 0 ? norm_eps : call.norm_eps,
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
  recurrence_of(*this, weights).advance(memory, call);
}

}  // namespace hyb::models
