#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/parts/part.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

struct Rope {
  std::int32_t rotary_dim;  ///< the first dims of a head that rotate; pairs are
                            ///< (i, i + rotary_dim/2)
  double theta;
  /// Radians per position of each pair; empty: theta^(-2i/rotary_dim).
  std::vector<double> frequencies = {};
  std::string scaling = {};  ///< why they are others: "llama3 x 8"
};

struct AttentionWeights {
  kernels::Weight qkv,
      o;                           ///< qkv: rows q | k | v, and with an output gate | gate
  kernels::Tensor q_norm, k_norm;  ///< [head_dim], with qk_norm
};

/// Grouped-query attention over pages of keys and values.
struct Attention {
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  float scale;                  ///< factor on q.k
  std::optional<Rope> rope;     ///< none: no positional encoding
  std::optional<Norm> qk_norm;  ///< per-head norm of q and k
  std::int32_t window = 0;      ///< positions that a token sees, its own included; 0: all
  bool output_gate = false;     ///< q_proj holds [q | gate] per head; out *= sigmoid(gate)
  float output_scale = 1.0F;

  using Weights = AttentionWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const { return {.kv = KvShape{kv_heads, head_dim, window}}; }
  PartWork work() const {
    return {.attention_width = static_cast<double>(inner()), .attention_window = window};
  }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int64_t inner() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  /// Rows of the input projection: q | k | v, and with an output gate | gate.
  std::int64_t projection() const { return (output_gate ? 2 : 1) * inner() + 2 * kv_width(); }
};

}  // namespace hyb::models
