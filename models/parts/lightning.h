#pragma once

#include <cstdint>
#include <optional>

#include "models/parts/attention.h"
#include "models/parts/recurrence.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct LightningWeights {
  kernels::Weight in_proj;  ///< rows gate | v | k | q of all heads
  kernels::Weight out_proj;
  kernels::Tensor taps, rate, zeros;  ///< of the recurrence, in no file
  kernels::Tensor norm;               ///< [inner]
  kernels::Tensor q_norm, k_norm;     ///< [head_dim], with a rope
};

/// Linear attention whose heads forget at a constant pace each: with S of every head, S <-
/// exp(rate) S + v (outer) k, y = S q, of the silu of q, k and v; then sigmoid(gate) * norm(y).
/// With a rope, every head of q and k goes through a norm and the rope instead of a silu, q also
/// times head_dim^-0.5. It runs as a Mamba-2 recurrence whose time steps are one, whose D is zero
/// and whose convolution takes the current token alone, for its silu; with a rope it has none.
struct Lightning {
  std::int32_t heads;
  std::int32_t head_dim;
  float pace;  ///< rate of head h: -pace * 2^(-8 (h + 1) / heads)
  float norm_eps = 1e-6F;
  std::optional<RopeParameters> rope = {};
  std::int32_t norm_groups = 1;  ///< of the norm of y, which has weights of its own for each
  float output_scale = 1.0F;

  using Weights = LightningWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const;
  PartWork work() const;
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  void advance(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t inner() const { return heads * head_dim; }
  RecurrentWidths widths() const { return {3 * std::int64_t{inner()}, 0, inner()}; }

  bool operator==(const Lightning&) const = default;
};

}  // namespace hyb::models
