#pragma once

#include <cstdint>

#include "models/parts/part.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct ShortConvWeights {
  kernels::Weight in_proj, out_proj;
  kernels::Tensor conv_weight;
};

/// Gated short convolution: in_proj -> [B | C | x], C * conv(B * x), out_proj.
struct ShortConv {
  std::int32_t channels;  ///< of each of the three
  std::int32_t conv_width;
  float output_scale = 1.0F;

  using Weights = ShortConvWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const {
    return {.state =
                StateShape{.channels = {{Division::heads, channels, 1}}, .conv_width = conv_width}};
  }
  PartWork work() const { return {}; }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting&) const { return 0; }
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  void advance(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  bool operator==(const ShortConv&) const = default;
};

}  // namespace hyb::models
