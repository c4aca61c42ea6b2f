#include <algorithm>

#include "kernels/linear/linear.h"
#include "kernels/ops/moe_experts.h"
#include "kernels/ops/moe_route.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

kernels::MoeExpertsShape shape_of(const Moe& part, std::int64_t tokens, std::int64_t width,
                                  DType activation) {
  return {.tokens = tokens,
          .chosen = part.active,
          .experts = part.experts,
          .hidden = width,
          .intermediate = part.hidden,
          .dtype = activation};
}

Mlp shared_of(const Moe& part) { return {.hidden = part.shared_hidden}; }

}  // namespace

void run(const Moe& part, const MoeWeights& weights, const PartCall& call) {
  if (part.shared_hidden > 0) run(shared_of(part), weights.shared, call);

  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  // Not rounded to the activation type: a rounding here can swap experts.
  const Tensor logits = call.scratch.take(DType::f32, {tokens, part.experts});
  const Tensor chosen = call.scratch.take(DType::i32, {tokens, part.active});
  const Tensor shares = call.scratch.take(DType::f32, {tokens, part.active});
  kernels::linear(call.queue, {.x = call.x, .weight = &weights.router, .y = logits});
  kernels::moe_route(
      call.queue,
      {.logits = logits, .bias = {}, .chosen = chosen, .weights = shares, .routing = {}});
  const auto bytes = static_cast<std::int64_t>(
      kernels::moe_experts_workspace_bytes(shape_of(part, tokens, call.x.dim(1), call.x.dtype)));
  kernels::moe_experts(call.queue, {.x = call.x,
                                    .chosen = chosen,
                                    .weights = shares,
                                    .gate_up = &weights.gate_up,
                                    .down = &weights.down,
                                    .y = call.residual,
                                    .workspace = call.scratch.take(DType::u8, {bytes}),
                                    .scale = call.residual_scale,
                                    .add = true});
}

std::size_t scratch_bytes(const Moe& part, std::int64_t tokens, std::int64_t width,
                          DType activation) {
  const auto rows = [&](std::int64_t columns, DType dtype) {
    return Scratch::padded(static_cast<std::size_t>(tokens * columns) * size_of(dtype));
  };
  const std::size_t routed = rows(part.experts, DType::f32) + rows(part.active, DType::i32) +
                             rows(part.active, DType::f32) +
                             Scratch::padded(kernels::moe_experts_workspace_bytes(
                                 shape_of(part, tokens, width, activation)));
  const std::size_t shared = scratch_bytes(shared_of(part), tokens, width, activation);
  return std::max(routed, shared);
}

}  // namespace hyb::models
