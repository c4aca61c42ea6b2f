#include "kernels/ops/moe.h"

#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

kernels::MoeShape shape_of(const Moe& part, std::int64_t tokens, std::int64_t width,
                           DType activation) {
  return {.tokens = tokens,
          .active = part.active,
          .experts = part.experts,
          .hidden = width,
          .intermediate = part.hidden,
          .shared_intermediate = part.shared_hidden,
          .dtype = activation,
          .activation = {part.activation, part.gated},
          .latent = part.latent,
          .router_dtype = part.router_f32 ? DType::f32 : activation,
          .has_shared_gate = part.shared_gate};
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

const kernels::Weight* if_there(bool is_there, const kernels::Weight& weight) {
  return is_there ? &weight : nullptr;
}

}  // namespace

void run(const Moe& part, const MoeWeights& weights, const MoeMemory& memory,
         const PartCall& call) {
  const bool is_shared = part.shared_hidden > 0;
  const bool is_latent = part.latent > 0;
  kernels::moe(call.queue, {.x = call.x,
                            .norm = call.norm,
                            .router = &weights.router,
                            .gate_up = &weights.gate_up,
                            .down = &weights.down,
                            .shared_gate_up = if_there(is_shared, weights.shared.gate_up),
                            .shared_down = if_there(is_shared, weights.shared.down),
                            .bias = weights.correction_bias,
                            .routing = routing_of(part),
                            .active = part.active,
                            .activation = {part.activation, part.gated},
                            .y = call.residual,
                            .workspace = memory.workspace,
                            .scale = call.residual_scale,
                            .shared_gate = if_there(part.shared_gate, weights.shared_gate),
                            .latent_in = if_there(is_latent, weights.latent_in),
                            .latent_out = if_there(is_latent, weights.latent_out)});
}

std::size_t workspace_bytes(const Moe& part, kernels::Device device, std::int64_t tokens,
                            std::int64_t width, DType activation) {
  return kernels::moe_workspace_bytes(device, shape_of(part, tokens, width, activation));
}

}  // namespace hyb::models
