#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "models/parts/part.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct LayerInputWeights {
  kernels::Weight gate, projection;
};

/// Adds what a layer takes from its own embedding of the token (Plan::layer_inputs), p [T,width]:
/// projection(activation(gate(x)) * p). x is the residual stream without a norm.
struct LayerInput {
  std::int32_t width;  ///< numbers for each token and layer
  std::int32_t layer;  ///< whose they are
  kernels::ActivationFunction function = kernels::ActivationFunction::gelu_tanh;
  float output_scale = 1.0F;

  using Weights = LayerInputWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t hidden) const;
  MemoryShape memory() const { return {}; }
  PartWork work() const { return {}; }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting&) const { return 0; }
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  bool operator==(const LayerInput&) const = default;
};

}  // namespace hyb::models
