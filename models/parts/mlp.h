#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/activation.h"
#include "models/parts/part.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

/// "gated silu".
std::string activation_text(const kernels::Activation& activation);

struct MlpWeights {
  kernels::Weight gate_up, down;  ///< gate_up: rows gate | up, or up alone
};

/// The names of a feed-forward's matrices; gate and up are stored as one, or apart.
struct FeedForwardRoles {
  Role gate_up, gate, up, down;
};
MlpWeights feed_forward_weights(WeightVisitor& visitor, std::int64_t width,
                                const FeedForwardRoles& roles, std::int64_t hidden, bool is_gated);

/// Feed-forward: down(act(gate_scale * gate) * up) when gated, else down(act(up)). With gate
/// deviations, which is gated and has no scale, the gate is sparse (kernels/ops/sparse_gate.h).
struct Mlp {
  std::int32_t hidden;
  kernels::Activation activation = {};
  float gate_scale = 1.0F;
  std::optional<float> gate_deviations = {};
  float output_scale = 1.0F;

  using Weights = MlpWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const { return {}; }
  PartWork work() const { return {}; }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting&) const { return 0; }
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  bool operator==(const Mlp&) const = default;
};

}  // namespace hyb::models
