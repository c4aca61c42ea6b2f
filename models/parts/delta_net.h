#pragma once

#include <cstdint>
#include <optional>

#include "kernels/op_shapes.h"
#include "models/parts/recurrence.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct DeltaNetWeights {
  kernels::Weight in_proj;  ///< rows q | k | v | z of all heads, and b | a
  /// b | a where they are of another format: where the others have codes, they stay plain.
  /// per_channel b alone.
  std::optional<kernels::Weight> ba;
  kernels::Weight out_proj;
  kernels::Weight a_b, z_b;  ///< per_channel: to a, and to z; without a rank a_b to both
  kernels::Tensor conv_weight, rate, dt_bias;
  kernels::Tensor norm;  ///< [values], the same for every head
};

/// Gated delta net; with decays per channel, where the gate is a sigmoid, Kimi delta attention.
struct DeltaNet {
  kernels::DeltaShape shape;
  std::int32_t value_heads;
  std::int32_t key_dim;    ///< per head
  std::int32_t value_dim;  ///< per head
  std::int32_t conv_width;
  float norm_eps = 0.0F;  ///< of the norm before out_proj; 0: the model's
  std::int32_t rank = 0;  ///< per_channel: a and z are made of as many numbers; 0: of the input
  float output_scale = 1.0F;

  using Weights = DeltaNetWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const;
  PartWork work() const;
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  void advance(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t keys() const { return shape.key_heads * key_dim; }
  std::int32_t values() const { return value_heads * value_dim; }
  std::int32_t conv_dim() const { return 2 * keys() + values(); }
  std::int32_t decays() const { return shape.per_channel ? value_heads * key_dim : value_heads; }
  /// q | k | v | z | b | a; per_channel q | k | v, with a rank | what a | and z are made of
  std::int32_t inputs() const {
    return conv_dim() + (shape.per_channel ? 2 * rank : values() + 2 * value_heads);
  }
  /// Widths of q k v, of b a and of y.
  RecurrentWidths widths() const { return {conv_dim(), value_heads + decays(), values()}; }

  bool operator==(const DeltaNet&) const = default;
};

}  // namespace hyb::models
