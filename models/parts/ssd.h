#pragma once

#include <array>
#include <cstdint>

#include "kernels/op_shapes.h"
#include "models/parts/recurrence.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct SsdWeights {
  kernels::Weight in_proj, out_proj;
  kernels::Tensor conv_weight, conv_bias, rate, d, dt_bias;
  kernels::Tensor norm;  ///< [inner], empty with SsdGate::gate_only
};

/// The output y of the recurrence meets z in one of these ways.
enum class SsdGate : std::uint8_t {
  gate_then_norm,  ///< norm(y * silu(z))
  norm_then_gate,  ///< norm(y) * silu(z)
  gate_only,       ///< y * silu(z)
};

/// Mamba-2: in_proj -> [z | x B C | dt], causal conv over xBC, recurrence, gated norm, out_proj.
struct Ssd {
  std::int32_t heads;
  std::int32_t head_dim;   ///< P
  std::int32_t state_dim;  ///< N
  kernels::SsdShape shape;
  std::int32_t conv_width;  ///< K
  bool conv_bias = true;
  std::int32_t norm_groups = 1;  ///< the gated norm runs over inner()/norm_groups channels
  SsdGate gate = SsdGate::gate_then_norm;
  /// Factors on what in_proj gives: z, x, B, C and dt.
  std::array<float, 5> projection_scales = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  float norm_eps = 0.0F;  ///< of the gated norm; 0: the model's
  float output_scale = 1.0F;

  using Weights = SsdWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const;
  PartWork work() const;
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  void advance(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t inner() const { return heads * head_dim; }
  std::int32_t conv_dim() const { return inner() + 2 * shape.groups * state_dim; }
  std::int32_t projection() const { return inner() + conv_dim() + heads; }
  /// Widths of x B C, of dt and of y.
  RecurrentWidths widths() const { return {conv_dim(), heads, inner()}; }

  bool operator==(const Ssd&) const = default;
};

}  // namespace hyb::models
