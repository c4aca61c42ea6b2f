#include "core/base/error.h"
#include "kernels/linear/project.h"
#include "models/parts/part.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Columns of the product that the activation takes.
std::int64_t product_columns(const Mlp& part) {
  return (part.gated ? 2 : 1) * std::int64_t{part.hidden};
}

}  // namespace

void run(const Mlp& part, const MlpWeights& weights, const PartCall& call) {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor product = call.scratch.take(call.x.dtype, {tokens, product_columns(part)});
  const Tensor active = call.scratch.take(call.x.dtype, {tokens, part.hidden});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.gate_up,
                                .y = active,
                                .activation = {{part.activation, part.gated}},
                                .normed = call.normed,
                                .product = product});
  kernels::project(call.queue, {.x = active,
                                .weight = &weights.down,
                                .y = call.residual,
                                .scale = call.residual_scale,
                                .add = true});
}

std::size_t scratch_bytes(const Mlp& part, std::int64_t tokens, DType activation) {
  return Scratch::space(activation, tokens, product_columns(part)) +
         Scratch::space(activation, tokens, part.hidden);
}

}  // namespace hyb::models
