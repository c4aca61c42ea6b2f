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
          .dtype = activation};
}

}  // namespace

void run(const Moe& part, const MoeWeights& weights, const MoeMemory& memory,
         const PartCall& call) {
  const bool is_shared = part.shared_hidden > 0;
  kernels::moe(call.queue, {.x = call.x,
                            .norm = call.norm,
                            .router = &weights.router,
                            .gate_up = &weights.gate_up,
                            .down = &weights.down,
                            .shared_gate_up = is_shared ? &weights.shared.gate_up : nullptr,
                            .shared_down = is_shared ? &weights.shared.down : nullptr,
                            .active = part.active,
                            .y = call.residual,
                            .workspace = memory.workspace,
                            .scale = call.residual_scale});
}

std::size_t workspace_bytes(const Moe& part, kernels::Device device, std::int64_t tokens,
                            std::int64_t width, DType activation) {
  return kernels::moe_workspace_bytes(device, shape_of(part, tokens, width, activation));
}

}  // namespace hyb::models
