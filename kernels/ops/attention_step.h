#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/attention.h"
#include "kernels/ops/rope_kv_write.h"

namespace hyb::kernels {

/// What is between a fused projection and the product after attention, for one more token of
/// every sequence: token r is the only one of span r.
///
///   rope_kv_write(qkv)   y = attention(q)
///
/// A span on a card may have no token: such spans come after the others, nothing is written for
/// them. Spans are taken in no order: none may write where another writes, nor continue another
/// ends.
///
/// shapes  qkv [R, (heads + 2*kv_heads)*head_dim], with queries_only [R, heads*head_dim], or wider
/// y [R, heads*head_dim]
///         all else as in rope_kv_write and attention   y may not alias qkv
/// types   as in rope_kv_write and attention
/// numbers bit-identical to the two, whatever the route
/// writes  y, the named places of the pages, workspace. The columns of q and k may hold either
///         before or after their norms and rotations.
struct AttentionStep {
  Tensor qkv, pages_of_layer, span_begin, position, page_begin, pages, y;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, page_tokens = 16;
  float scale = 1.0F;
  std::int64_t rotary_dim = 0;  ///< 0: q and k stay as they are
  double theta = 10000.0;
  std::span<const double> frequencies = {};  ///< as in Rope
  Tensor q_norm = {}, k_norm = {};
  float norm_eps = 1e-6F;
  bool norm_one_plus = false;                     ///< as in RmsNorm
  bool value_norm = false, queries_only = false;  ///< as in RopeKvWrite
  bool weightless_norm = false;
  QueryScale query_scale = {};
  Tensor workspace = {};
  std::int64_t window = 0, chunk = 0;  ///< 0: none
  float softcap = 0.0F;                ///< 0: none
  Tensor sinks = {};
  Tensor gate = {};
  std::int64_t positions = 0;  ///< as in Attention
};

/// The two ops that a step of single tokens consists of.
RopeKvWrite write_of(const AttentionStep& op);
Attention attention_of(const AttentionStep& op);

void attention_step(Queue& queue, const AttentionStep& op);

}  // namespace hyb::kernels
