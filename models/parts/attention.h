#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/rope_kv_write.h"
#include "models/parts/part.h"
#include "models/parts/weight_visitor.h"

namespace hyb::models {

/// Rotary positions as config.json describes them; kernels::rope turns numbers by the frequencies.
struct RopeParameters {
  double theta;
  /// Radians per position of each pair (i, i + rotary_dim/2): theta^(-2i/rotary_dim), or scaled.
  std::vector<double> frequencies;
  std::string scaling = {};  ///< how: "llama3 x 8"
  bool neighbours = false;   ///< published pairs are (2i, 2i+1) of whole heads: rows of q and k are
                             ///< loaded in the order of the pairs above
  double magnitude = 1.0;    ///< factor on what is rotated, q and k

  /// With the powers of theta.
  static RopeParameters plain(std::int32_t rotary_dim, double theta);

  /// The first dims of a head, which rotate.
  std::int32_t rotary_dim() const { return static_cast<std::int32_t>(2 * frequencies.size()); }

  bool operator==(const RopeParameters&) const = default;
};

struct AttentionWeights {
  kernels::Weight qkv,
      o;                             ///< qkv: rows q | k | v, and with a gate | gate
  kernels::Tensor q_norm, k_norm;    ///< [head_dim], of whole_norm [q or k], with qk_norm
  kernels::Tensor sinks;             ///< [heads], with sinks
  kernels::Weight kv;                ///< rows k | v of qkv once more, with has_keys_alone
  kernels::Tensor qkv_bias, o_bias;  ///< of the rows of qkv, and of o
};

/// Grouped-query attention over pages of keys and values.
struct Attention {
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  float scale;                           ///< factor on q.k
  std::optional<RopeParameters> rope;    ///< none: no positional encoding
  std::optional<Norm> qk_norm;           ///< per-head norm of q and k
  bool whole_norm = false;               ///< qk_norm, rms, is of all heads of q and of k together
  bool weightless_norm = false;          ///< per-head norm of q and k, without weights
  std::int32_t window = 0;               ///< positions that a token sees, its own included; 0: all
  std::int32_t chunk = 0;                ///< positions before the last multiple of it are not seen
  kernels::QueryScale query_scale = {};  ///< factor on q by its position
  float score_cap = 0.0F;                ///< scores are cap * tanh(score / cap); 0: as they are
  bool sinks = false;            ///< the softmax has one more score per head, whose value is zero
  bool value_norm = false;       ///< per-head norm of v, without a weight
  bool keys_are_values = false;  ///< v is k before its norm and rope: there is no v_proj
  std::int32_t kv_of = -1;       ///< a layer whose keys and values it reads; -1: its own
  bool output_gate = false;      ///< q_proj holds [q | gate] per head; out *= sigmoid(gate)
  bool head_gate = false;        ///< one gate per head, from a matrix of its own; no output_gate
  bool biases = false;           ///< of q, k and v; not with a gate
  bool output_bias = false;      ///< of o
  float output_scale = 1.0F;
  bool has_keys_alone = false;  ///< write_keys() can be called
  bool reads_pairs = false;     ///< x is [T,2H], normed
  /// A token of a draft layer that gets blocks sees keys up to its block's end. Without a window.
  bool sees_block = false;

  using Weights = AttentionWeights;
  Weights weights(WeightVisitor& visitor, std::int64_t width) const;
  MemoryShape memory() const {
    if (kv_of >= 0) return {.kv_of = kv_of};
    return {.kv = KvShape{kv_heads, head_dim, window, chunk, heads}};
  }
  PartWork work() const {
    return {.attention_width = static_cast<double>(inner()),
            .attention_window = window,
            .attention_chunk = chunk};
  }
  PartText text() const;
  std::size_t scratch_bytes(const StepSetting& setting) const;
  std::size_t workspace_bytes(const StepSetting& setting) const;
  void run(const Weights& weights, const PartMemory& memory, const PartCall& call) const;
  /// Writes the keys and values that run() would write, and nothing else.
  void write_keys(const Weights& weights, const PartMemory& memory, const PartCall& call) const;

  std::int32_t reach() const { return window > 0 ? window : chunk; }
  std::int64_t inner() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
  /// Rows of the input projection: q | k | v (q alone where it has no keys of its own), and with an
  /// gate | gate.
  std::int64_t projection() const { return qkv_width() + gate_width(); }
  std::int64_t gate_width() const { return output_gate ? inner() : head_gate ? heads : 0; }
  std::int64_t qkv_width() const { return inner() + (kv_of < 0 ? 2 * kv_width() : 0); }

  bool operator==(const Attention&) const = default;
};

}  // namespace hyb::models
