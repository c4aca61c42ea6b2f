#include "models/parts/lightning.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/ops/rms_norm.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

std::int32_t conv_width(const Lightning& part) { return part.rope ? 1 : 2; }

/// Norms and turns all heads of q or k.
void norm_and_turn(const Lightning& part, const Tensor& weight, const PartCall& call,
                   const Tensor& x) {
  kernels::rms_norm(call.queue,
                    {.x = x, .weight = weight, .y = x, .eps = part.norm_eps, .heads = part.heads});
  kernels::rope(call.queue, {.x = x,
                             .position_of_row = call.tables.position_of_row,
                             .heads = part.heads,
                             .head_dim = part.head_dim,
                             .frequencies = part.rope->frequencies});
}

Recurrence<kernels::MambaScan> recurrence_of(const Lightning& part,
                                             const LightningWeights& weights) {
  kernels::MambaScan op;
  op.rate = weights.rate;
  op.d = weights.zeros;
  op.dt_bias = weights.zeros;
  op.shape = {.groups = part.heads, .dt_min = 1.0F, .dt_max = 1.0F};
  return {.widths = part.widths(),
          .conv_weight = weights.taps,
          .conv_bias = {},
          .op = op,
          .scan = kernels::mamba_scan,
          .step = kernels::mamba_step};
}

std::vector<float> rates(const Lightning& part) {
  std::vector<float> found;
  for (std::int32_t head = 1; head <= part.heads; ++head) {
    found.push_back(static_cast<float>(-part.pace * std::exp2(-8.0 * head / part.heads)));
  }
  return found;
}

/// Those of the current token.
std::vector<float> taps(std::int64_t channels) {
  std::vector<float> found;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    found.insert(found.end(), {0.0F, 1.0F});
  }
  return found;
}

}  // namespace

LightningWeights Lightning::weights(WeightVisitor& visitor, std::int64_t width) const {
  LightningWeights weights;
  const StoredMatrix qkv = visitor.stored("lightning.qkv", 3 * std::int64_t{inner()}, width);
  MatrixRows rows(width);
  rows.append(visitor.stored("lightning.gate", inner(), width));
  for (const std::int64_t piece : {2, 1, 0}) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t place = rope ? piece * heads + h : 3 * h + piece;
      rows.append(qkv, place * head_dim, head_dim);
    }
  }
  weights.in_proj = visitor.pack(rows);
  if (rope) {
    weights.q_norm = visitor.vector("lightning.q_norm", head_dim);
    weights.k_norm = visitor.vector("lightning.k_norm", head_dim);
  } else {
    const std::int64_t channels = widths().channels;
    weights.taps = visitor.constants(taps(channels), {channels, conv_width(*this)});
  }
  weights.rate = visitor.constants(rates(*this), {heads});
  weights.zeros =
      visitor.constants(std::vector<float>(static_cast<std::size_t>(heads), 0.0F), {heads});
  weights.norm = visitor.vector("lightning.norm", inner());
  weights.out_proj = visitor.matrix("lightning.out_proj", width, inner());
  return weights;
}

MemoryShape Lightning::memory() const {
  const HeadNumbers v = {Division::heads, heads, head_dim}, k = v, q = v;
  return {.state = StateShape{.channels = {v, k, q},
                              .conv_width = conv_width(*this),
                              .heads = heads,
                              .rows = head_dim,
                              .columns = head_dim}};
}

/// Counts as Mamba-2 does, with a group for each head.
PartWork Lightning::work() const {
  return {
      .token_flops = 4.0 * inner() * head_dim, .chunk_flops = 4.0 * inner(), .chunk_tokens = 128};
}

PartText Lightning::text() const {
  std::string text = fmt::format("lightning attention, {} heads x {}", heads, head_dim);
  if (rope) {
    text += fmt::format(", q/k norm, rope over {} dims, theta {}, norm in {} groups",
                        rope->rotary_dim(), rope->theta, norm_groups);
  }
  return {.kind = "lightning", .text = std::move(text)};
}

std::size_t Lightning::scratch_bytes(const StepSetting& setting) const {
  return widths().scratch_bytes(setting, 4 * std::int64_t{inner()});
}

std::size_t Lightning::workspace_bytes(const StepSetting& setting) const {
  return kernels::ssd_workspace_bytes(setting.device, heads, head_dim, head_dim);
}

void Lightning::run(const LightningWeights& weights, const PartMemory& memory,
                    const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0), channels = widths().channels;
  const DType dtype = call.x.dtype;
  const Tensor projected = call.scratch.take(dtype, {tokens, inner() + channels});
  const Tensor convolved = call.scratch.take(dtype, {tokens, channels});
  const Tensor mixed = call.scratch.take(dtype, {tokens, inner()});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.in_proj,
                                .y = projected,
                                .normed = call.normed});
  if (rope) {
    norm_and_turn(*this, weights.k_norm, call,
                  projected.columns(2 * std::int64_t{inner()}, inner()));
    norm_and_turn(*this, weights.q_norm, call,
                  projected.columns(3 * std::int64_t{inner()}, inner()));
  }
  recurrence_of(*this, weights)
      .run(memory, call,
           {.x = projected.columns(inner(), channels),
            .controls = projected.columns(inner() + channels, 0)},
           convolved, mixed);
  // This is the epsilon of y without that factor on q.
  const float eps = rope ? norm_eps * static_cast<float>(head_dim) : norm_eps;
  kernels::project(call.queue, {.x = mixed,
                                .norm = {.weight = weights.norm,
                                         .eps = eps,
                                         .gate = projected.columns(0, inner()),
                                         .groups = norm_groups,
                                         .norm_first = true,
                                         .sigmoid_gate = true},
                                .weight = &weights.out_proj,
                                .y = call.residual,
                                .normed = mixed,
                                .scale = output_scale,
                                .add = call.add});
}

void Lightning::advance(const LightningWeights& weights, const PartMemory& memory,
                        const PartCall& call) const {
  recurrence_of(*this, weights).advance(memory, call);
}

}  // namespace hyb::models
