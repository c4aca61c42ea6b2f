#pragma once

#include <cstdint>

#include "models/parts/recurrence.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct S6Weights {
  kernels::Weight in_proj, x_proj, dt_proj, out_proj;
  kernels::Tensor conv_weight, conv_bias, rate, d, dt_bias;
  kernels::Tensor dt_norm, b_norm, c_norm;  ///< with S6Norms::weighted
};

/// The convolved x gives dt (before dt_proj), B and C, of which each is normalised by itself.
enum class S6Norms : std::uint8_t {
  none,
  plain,     ///< rms without weights
  weighted,  ///< rms
};

/// Mamba-1: in_proj -> [x | z], causal conv over x, x_proj of that -> [dt | B | C], dt_proj of dt,
/// the selective scan, times silu(z), out_proj.
struct S6 {
  std::int32_t channels;
  std::int32_t state_dim;   ///< N
  std::int32_t dt_rank;     ///< R, of what dt_proj reads
  std::int32_t conv_width;  ///< K
  bool conv_bias = true;
  S6Norms norms = S6Norms::none;
  float dt_norm_eps = 0.0F;  ///< of these norms
  float output_scale = 1.0F;

  using Weights = S6Weights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const;
  PartWork work() const;
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting&) const { return 0; }
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  void advance(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t selected() const { return dt_rank + 2 * state_dim; }
  /// A ring keeps x alone: the rest follows from its convolution.
  RecurrentWidths widths() const { return {channels, 0, channels}; }

  bool operator==(const S6&) const = default;
};

}  // namespace hyb::models
