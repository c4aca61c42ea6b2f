#include "kernels/linear/project.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

void run(const Mlp& part, const MlpWeights& weights, const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor both = call.scratch.take(call.x.dtype, {tokens, 2 * std::int64_t{part.hidden}});
  const Tensor active = call.scratch.take(call.x.dtype, {tokens, part.hidden});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.gate_up,
                                .y = active,
                                .activation = kernels::Activation::silu_gated,
                                .normed = call.normed,
                                .product = both});
  kernels::project(call.queue, {.x = active,
                                .weight = &weights.down,
                                .y = call.residual,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const Mlp& part, std::int64_t tokens, std::int64_t, DType activation) {
  const std::size_t row = static_cast<std::size_t>(part.hidden) * size_of(activation);
  return Scratch::padded(2 * row * static_cast<std::size_t>(tokens)) +
         Scratch::padded(row * static_cast<std::size_t>(tokens));
}

}  // namespace hyb::models
