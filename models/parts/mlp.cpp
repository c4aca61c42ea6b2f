#include "models/parts/mlp.h"

#include <fmt/format.h>

#include <array>

#include "kernels/ops/gated_activation.h"
#include "kernels/ops/scale_columns.h"
#include "kernels/ops/sparse_gate.h"

namespace hyb::models {

using kernels::Tensor;

namespace {

/// Columns of the product that the activation takes.
std::int64_t product_columns(const Mlp& part) { return part.activation.inputs() * part.hidden; }

}  // namespace

std::string activation_text(const kernels::Activation& activation) {
  return std::string(activation.gated ? "gated " : "") + kernels::name_of(activation.function);
}

MlpWeights feed_forward_weights(WeightVisitor& visitor, std::int64_t width,
                                const FeedForwardRoles& roles, std::int64_t hidden, bool is_gated) {
  MlpWeights weights;
  if (!is_gated) {
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
  return feed_forward_weights(visitor, width, roles, hidden, activation.gated);
}

PartText Mlp::text() const {
  return {.kind = "mlp",
          .text = fmt::format("{} wide, {}{}", hidden, gate_deviations ? "sparse " : "",
                              activation_text(activation))};
}

std::size_t Mlp::scratch_bytes(const StepSetting& setting) const {
  return Scratch::space(setting.activation, setting.limits.step_tokens, product_columns(*this)) +
         Scratch::space(setting.activation, setting.limits.step_tokens, hidden);
}

void Mlp::run(const MlpWeights& weights, const PartMemory&, const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const std::int64_t tokens = call.x.dim(0);
  const Tensor product = call.scratch.take(call.x.dtype, {tokens, product_columns(*this)});
  const Tensor active = call.scratch.take(call.x.dtype, {tokens, hidden});
  kernels::Project input = {.x = call.x,
                            .norm = call.norm,
                            .weight = &weights.gate_up,
                            .y = product,
                            .normed = call.normed};
  if (gate_scale == 1.0F && !gate_deviations && call.adapter == nullptr) {
    input.y = active;
    input.activation = activation;
    input.product = product;
    kernels::project(call.queue, input);
  } else {
    const Tensor gate = product.columns(0, hidden);
    kernels::project(call.queue, input);
    if (call.adapter != nullptr) add_adapter(call, product);
    if (gate_deviations) {
      kernels::sparse_gate(call.queue, {.x = gate, .deviations = *gate_deviations});
    } else if (gate_scale != 1.0F) {
      const std::array<kernels::ColumnSegment, 1> scale = {{{hidden, gate_scale}}};
      kernels::scale_columns(call.queue, {.x = gate, .segments = scale});
    }
    kernels::gated_activation(call.queue, {.x = product, .y = active, .activation = activation});
  }
  kernels::project(call.queue, {.x = active,
                                .weight = &weights.down,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

}  // namespace hyb::models
