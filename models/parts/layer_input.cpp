#include "models/parts/layer_input.h"

#include <fmt/format.h>

#include "kernels/ops/gated_activation.h"

namespace hyb::models {

using kernels::Tensor;

LayerInputWeights LayerInput::weights(WeightVisitor& visitor, std::int64_t hidden) const {
  return {.gate = visitor.matrix("layer_input.gate", width, hidden),
          .projection = visitor.matrix("layer_input.projection", hidden, width)};
}

PartText LayerInput::text() const {
  return {.kind = "layer input",
          .text = fmt::format("{} wide, {}", width, kernels::name_of(function))};
}

std::size_t LayerInput::scratch_bytes(const StepSetting& setting) const {
  return Scratch::space(setting.activation, setting.limits.step_tokens, width);
}

void LayerInput::run(const LayerInputWeights& weights, const PartMemory&,
                     const PartCall& call) const {
  const ScratchFrame frame(call.scratch);
  const Tensor gate = call.scratch.take(call.x.dtype, {call.x.dim(0), width});
  kernels::project(call.queue, {.x = call.x, .weight = &weights.gate, .y = gate});
  kernels::gated_activation(call.queue,
                            {.x = gate,
                             .y = gate,
                             .activation = {.function = function},
                             .up = call.layer_inputs.columns(std::int64_t{layer} * width, width)});
  kernels::project(call.queue, {.x = gate,
                                .weight = &weights.projection,
                                .y = call.residual,
                                .scale = output_scale,
                                .add = call.add});
}

}  // namespace hyb::models
