#include "models/parts/moe.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/ops/moe.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::models {
namespace {

/// Says whether gate and up are a tensor each of all experts.
bool is_separate(const Moe& part, WeightVisitor& visitor) {
  return part.separate && !visitor.is_fused("moe.gate_up", "moe.up_stack");
}

/// Both matrices of all experts, stored in one tensor each or expert by expert.
void pack_experts(const Moe& part, WeightVisitor& visitor, std::int64_t width,
                  MoeWeights& weights) {
  const std::int64_t hidden = part.hidden;
  MatrixRows gate_up(width, part.experts), down(hidden, part.experts);
  if (part.alternating) {
    const bool is_transposed = visitor.is_fused("moe.gate_up_transposed", "moe.gate_up");
    gate_up.append_alternating(
        visitor.stored_experts(is_transposed ? Role("moe.gate_up_transposed") : "moe.gate_up",
                               part.experts, 2 * hidden, width, is_transposed));
    down.append(visitor.stored_experts(is_transposed ? Role("moe.down_transposed") : "moe.down",
                                       part.experts, width, hidden, is_transposed));
  } else if (part.transposed) {
    gate_up.append(visitor.stored_experts("moe.gate_up_transposed", part.experts,
                                          part.activation.inputs() * hidden, width, true));
    down.append(visitor.stored_experts("moe.down_transposed", part.experts, width, hidden, true));
  } else if (is_separate(part, visitor)) {
    const auto gate = visitor.stored_experts("moe.gate_stack", part.experts, hidden, width);
    const auto up = visitor.stored_experts("moe.up_stack", part.experts, hidden, width);
    for (std::int64_t e = 0; e < part.experts; ++e) {
      gate_up.append(gate, e * hidden, hidden);
      gate_up.append(up, e * hidden, hidden);
    }
    down.append(visitor.stored_experts("moe.down", part.experts, width, hidden));
  } else if (part.separate || visitor.is_fused("moe.gate_up", "moe.expert_up", 0)) {
    const std::int64_t rows = part.activation.inputs() * hidden;
    gate_up.append(visitor.stored_experts("moe.gate_up", part.experts, rows, width));
    down.append(visitor.stored_experts("moe.down", part.experts, width, hidden));
  } else {
    for (std::int32_t e = 0; e < part.experts; ++e) {
      if (part.activation.gated)
        gate_up.append(visitor.stored_expert("moe.expert_gate", e, hidden, width));
      gate_up.append(visitor.stored_expert("moe.expert_up", e, hidden, width));
      down.append(visitor.stored_expert("moe.expert_down", e, width, hidden));
    }
  }
  weights.gate_up = visitor.pack(gate_up);
  weights.down = visitor.pack(down);
}

kernels::MoeShape shape_of(const Moe& part, const StepSetting& setting) {
  return {.tokens = setting.limits.step_tokens,
          .active = part.active,
          .experts = part.experts,
          .hidden = setting.width,
          .intermediate = part.hidden,
          .shared_intermediate = part.shared_hidden,
          .dtype = setting.activation,
          .activation = part.activation,
          .latent = part.latent,
          .router_dtype = part.router_f32 ? DType::f32 : setting.activation,
          .has_shared_gate = part.shared_gate,
          .weighs_input = part.weighs_input};
}

kernels::Routing::Score score_of(RouterScore score) {
  using Score = kernels::Routing::Score;
  switch (score) {
    case RouterScore::softmax_of_selected:
      return Score::softmax_of_selected;
    case RouterScore::softmax:
      return Score::softmax;
    case RouterScore::sigmoid:
      break;
  }
  return Score::sigmoid;
}

kernels::Routing routing_of(const Moe& part) {
  return {.score = score_of(part.score),
          .renormalize = part.renormalize,
          .renormalize_epsilon = part.renormalize_epsilon,
          .scale = part.scale,
          .groups = part.groups,
          .active_groups = part.active_groups};
}

const kernels::Weight* if_present(bool is_present, const kernels::Weight& weight) {
  return is_present ? &weight : nullptr;
}

}  // namespace

MoeWeights Moe::weights(WeightVisitor& visitor, std::int64_t width) const {
  MoeWeights weights;
  weights.router =
      visitor.matrix("moe.router", experts, width, router_f32 ? Packing::f32 : Packing::activation);
  if (router_norm) {
    const float factor = 1.0F / std::sqrt(static_cast<float>(width));
    weights.router_norm = visitor.scaled_vector("moe.router_norm", width, factor);
  }
  if (expert_scale) weights.expert_scale = visitor.vector("moe.expert_scale", experts);
  if (correction_bias) weights.correction_bias = visitor.vector("moe.correction_bias", experts);
  if (latent > 0) {
    weights.latent_in = visitor.matrix("moe.latent_in", latent, width);
    weights.latent_out = visitor.matrix("moe.latent_out", width, latent);
  }
  pack_experts(*this, visitor, latent > 0 ? latent : width, weights);
  if (shared_hidden > 0) {
    constexpr FeedForwardRoles roles = {"moe.shared_gate_up", "moe.shared_gate", "moe.shared_up",
                                        "moe.shared_down"};
    weights.shared = feed_forward_weights(visitor, width, roles, shared_hidden, activation.gated);
  }
  if (shared_gate) {
    weights.shared_gate = visitor.matrix("moe.shared_expert_gate", 1, width, Packing::activation);
  }
  if (biases) {
    weights.router_bias = visitor.vector("moe.router_bias", experts);
    weights.gate_up_bias =
        is_separate(*this, visitor)
            ? visitor.expert_vectors("moe.gate_bias", "moe.up_bias", experts, hidden)
            : visitor.expert_vectors("moe.gate_up_bias", experts, activation.inputs() * hidden,
                                     alternating);
    weights.down_bias =
        visitor.expert_vectors("moe.down_bias", experts, latent > 0 ? latent : width);
  }
  return weights;
}

PartText Moe::text() const {
  std::string text = fmt::format("{} experts, {} active, {} wide, {}", experts, active, hidden,
                                 activation_text(activation));
  if (groups > 1) text += fmt::format(", of {} of {} groups", active_groups, groups);
  if (latent > 0) text += fmt::format(", latent {}", latent);
  if (shared_hidden > 0) text += fmt::format(", shared expert {} wide", shared_hidden);
  if (shared_activation) text += ", " + activation_text(*shared_activation);
  if (biases) text += ", biases";
  if (weighs_input) text += ", weighed inputs";
  if (router_norm) text += ", router with a norm";
  if (expert_scale) text += ", a factor per expert";
  return {.kind = "moe", .text = std::move(text)};
}

/// All else is in the workspace.
std::size_t Moe::scratch_bytes(const StepSetting& setting) const {
  return router_norm ? Scratch::space(setting.activation, setting.limits.step_tokens, setting.width)
                     : 0;
}

std::size_t Moe::workspace_bytes(const StepSetting& setting) const {
  return kernels::moe_workspace_bytes(setting.device, shape_of(*this, setting));
}

void Moe::run(const MoeWeights& weights, const PartMemory& memory, const PartCall& call) const {
  const bool is_shared = shared_hidden > 0;
  const bool is_latent = latent > 0;
  const ScratchFrame frame(call.scratch);
  kernels::Tensor router_x;
  if (router_norm) {
    require(!call.norm.empty(), "moe: a router with a norm of its own reads x before the norm");
    router_x = call.scratch.take(call.x.dtype, {call.x.dim(0), call.x.dim(1)});
    kernels::rms_norm(
        call.queue,
        {.x = call.x, .weight = weights.router_norm, .y = router_x, .eps = call.norm_eps});
  }
  kernels::fused_moe(call.queue, {.x = call.x,
                                  .norm = call.norm,
                                  .router = &weights.router,
                                  .gate_up = &weights.gate_up,
                                  .down = &weights.down,
                                  .shared_gate_up = if_present(is_shared, weights.shared.gate_up),
                                  .shared_down = if_present(is_shared, weights.shared.down),
                                  .bias = weights.correction_bias,
                                  .routing = routing_of(*this),
                                  .active = active,
                                  .activation = activation,
                                  .y = call.residual,
                                  .workspace = memory.workspace,
                                  .scale = output_scale,
                                  .shared_gate = if_present(shared_gate, weights.shared_gate),
                                  .latent_in = if_present(is_latent, weights.latent_in),
                                  .latent_out = if_present(is_latent, weights.latent_out),
                                  .router_bias = weights.router_bias,
                                  .gate_up_bias = weights.gate_up_bias,
                                  .down_bias = weights.down_bias,
                                  .weighs_input = weighs_input,
                                  .router_x = router_x,
                                  .expert_scale = weights.expert_scale,
                                  .shared_activation = shared_activation,
                                  .add = call.add});
}

}  // namespace hyb::models
