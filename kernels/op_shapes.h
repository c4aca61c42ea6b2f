#pragma once

#include <cstdint>
#include <limits>

namespace hyb::kernels {

/// Shape of a gated delta net's heads, from the plan of a model to the kernels; sizes are those of
/// the tensors.
struct DeltaShape {
  std::int32_t key_heads = 1;
  bool tiled = false;  ///< value head v goes with key head v % key_heads, as GGUF files have them
  float beta_scale = 1.0F;
  /// Kimi delta attention: rows of a state decay each at its own pace. Not tiled.
  bool per_channel = false;
  float decay_floor = 0.0F;  ///< per_channel alone, below 0; 0: none

  bool operator==(const DeltaShape&) const = default;
};

inline constexpr float delta_rule_eps = 1e-6F;  ///< added to the squares of a q or k

/// The same of Mamba-2.
struct SsdShape {
  std::int32_t groups = 1;  ///< B and C are shared by heads / groups heads
  float dt_min = 0.0F, dt_max = std::numeric_limits<float>::infinity();

  bool operator==(const SsdShape&) const = default;
};

/// The same of attention by latents: of every token all heads read one row [turned | latent].
struct LatentShape {
  std::int32_t heads = 0;
  std::int32_t turned_width = 0;  ///< the numbers with positions
  std::int32_t latent_width = 0;  ///< what keys and values are made of
  float scale = 1.0F;             ///< factor on q.k

  std::int32_t row_width() const { return turned_width + latent_width; }
  std::int64_t latents() const { return std::int64_t{heads} * latent_width; }

  bool operator==(const LatentShape&) const = default;
};

}  // namespace hyb::kernels
