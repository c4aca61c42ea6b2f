#pragma once

#include <cstdint>
#include <optional>

#include "kernels/op_shapes.h"
#include "models/parts/attention.h"

namespace hyb::models {

struct MlaWeights {
  /// Rows of q, or of what q is made of; then of a token's row of pages; with a gate | gate.
  kernels::Weight in_proj;
  kernels::Weight q_b;  ///< with q_rank: rows of q
  kernels::Weight o;
  /// A matrix of each head: from its query to one for latents, and from what that finds to its
  /// values.
  kernels::Weight to_latent, to_values;
  kernels::Tensor q_norm, kv_norm;  ///< [q_rank], [latent]
};

/// Attention by latents (MLA): pages have one row for all heads, from which keys and values are
/// made. Here they are not: a head's query goes through what would make its keys, what it finds
/// through what would make its values, so that keys are as wide as the rows, for every step alike.
struct Mla : kernels::LatentShape {
  std::int32_t plain_dim;  ///< of a head's query and key, without positions
  std::int32_t value_dim;
  std::int32_t q_rank = 0;  ///< q is made of q_rank normed numbers; 0: of the input
  std::optional<RopeParameters> rope = {};
  float norm_eps = 1e-6F;  ///< of both norms
  bool head_gate = false;  ///< a head's values times the sigmoid of its gate
  float output_scale = 1.0F;

  using Weights = MlaWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const {
    return {.kv = KvShape{
                .kv_heads = 1, .head_dim = row_width(), .query_heads = heads, .are_latents = true}};
  }
  PartWork work() const;
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t query_dim() const { return turned_width + plain_dim; }
  std::int64_t queries() const { return std::int64_t{heads} * query_dim(); }
  std::int64_t values() const { return std::int64_t{heads} * value_dim; }
  std::int64_t first_queries() const { return q_rank > 0 ? q_rank : queries(); }
  std::int64_t gate_width() const { return head_gate ? heads : 0; }
  std::int64_t projection() const { return first_queries() + row_width() + gate_width(); }

  bool operator==(const Mla&) const = default;
};

}  // namespace hyb::models
