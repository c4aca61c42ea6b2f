#include "models/parts/mlp.h"

#include <fmt/format.h>

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Columns of the product that the activation takes.
std::int64_t product_columns(const Mlp& part) {
  return (part.gated ? 2 : 1) * std::int64_t{part.hidden};
}

}  // namespace

std::string activation_text(Activation activation, bool gated) {
  return std::string(gated ? "gated " : "") + kernels::name_of(activation);
}

MlpWeights feed_forward_weights(WeightVisitor& visitor, std::int64_t width,
                                const FeedForwardRoles& roles, std::int64_t hidden, bool gated) {
  MlpWeights weights;
  if (!gated) {
    weights.gate_up = visitor.matrix(roles.up, hidden, width);
  } else if (visitor.is_fused(roles.gate_up, roles.up)) {
    weights.gate_up = visitor.matrix(roles.gate_up, 2 * hidden, width);
  } else {
    weights.gate_up = visitor.stacked({{roles.gate, hidden}, {roles.up, hidden}}, width);
  }
  weights.down = visitor.matrix(roles.down, width, hidden);
  return weights;
}

MlpWeights Mlp::weights(WeightVisitor& visitor, std::int64_t width) const {
  constexpr FeedForwardRoles roles = {"mlp.gate_up", "mlp.gate", "mlp.up", "mlp.down"};
  return feed_forward_weights(visitor, width, roles, hidden, gated);
}

PartText Mlp::text() const {
  return {.kind = "mlp",
          .text = fmt::format("{} wide, {}", hidden, activation_text(activation, gated))};
}

std::size_t Mlp::scratch_bytes(const StepSetting& setting) const {
  return Scratch::space(setting.activation, setting.limits.tokens, product_columns(*this)) +
         Scratch::space(setting.activation, setting.limits.tokens, hidden);
}

void Mlp::run(const MlpWeights& weights, const PartMemory&, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor product = call.scratch.take(call.x.dtype, {tokens, product_columns(*this)});
  const Tensor active = call.scratch.take(call.x.dtype, {tokens, hidden});
  kernels::project(call.queue, {.x = call.x,
                                .norm = call.norm,
                                .weight = &weights.gate_up,
                                .y = active,
                                .activation = {{activation, gated}},
                                .normed = call.normed,
                                .product = product});
  kernels::project(call.queue, {.x = active,
                                .weight = &weights.down,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = true});
}

}  // namespace hyb::models
