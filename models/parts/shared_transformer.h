#pragma once

#include <cstdint>

#include "models/parts/attention.h"
#include "models/parts/mlp.h"

namespace hyb::models {

/// The block's own weights are there in its first layer alone.
struct SharedTransformerWeights {
  kernels::Tensor norm, mlp_norm;  ///< [2H], [H]
  AttentionWeights attention;
  MlpWeights mlp;
  Adapter qkv_adapter, mlp_adapter;  ///< of the layer, as the matrix below is
  kernels::Weight linear;            ///< [H,H]
};

/// A block of attention and a feed-forward whose weights several layers share, without a residual
/// stream of its own (Zamba2). With e the embedding and adapters that each layer has of its own,
/// norms rms:
///
///   linear * mlp(norm(attention(norm([x | e]))))
struct SharedTransformer {
  Attention attention;  ///< reads_pairs
  Mlp mlp;
  std::int32_t rank;             ///< of the adapters
  bool adapts_qkv;               ///< else the feed-forward's gate and up alone
  std::int32_t layer = 0;        ///< whose part it is
  std::int32_t first_layer = 0;  ///< the first of the layers that share the block
  std::int32_t use = 0;          ///< how many layers before have a block, this one or another
  float output_scale = 1.0F;

  using Weights = SharedTransformerWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const { return attention.memory(); }
  PartWork work() const { return attention.work(); }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const {
    return attention.workspace_bytes(setting);
  }
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  bool operator==(const SharedTransformer&) const = default;
};

}  // namespace hyb::models
