#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t rope_kv_write_head_dim_max = 512;

/// What stands between a fused projection and attention: rms_norm of every head of q and k where
/// there are weights for it, rope on q and k, then kv_write of k and v.
///
///   qkv[t] = q heads, then k heads, then v heads, then anything
///
/// shapes  qkv [T, (heads + 2*kv_heads)*head_dim] or wider; rows may be strided
///         position_of_row [T], not read where rotary_dim is 0; else position_of_row[t] is the
///         token's position as kv_write counts it   head_dim at most 512
///         q_norm, k_norm [head_dim] or empty   all else as in kv_write
/// types   qkv: f32 or bf16   pages_of_layer as in kv_write   q_norm, k_norm: f32   tables: i32
/// numbers as in rms_norm and rope: q and k are rounded to the type of qkv behind either, and k
///         before it goes to the pages
/// writes  the columns of q, and the named places of the pages. The columns of k may hold k before
///         or after its norm and rotation: a route need not write them back.
struct RopeKvWrite {
  Tensor qkv, position_of_row, pages_of_layer, span_begin, position, page_begin, pages;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, page_tokens = 16;
  std::int64_t rotary_dim = 0;  ///< 0: q and k stay as they are
  double theta = 10000.0;
  Tensor q_norm = {}, k_norm = {};
  float norm_eps = 1e-6F;
  bool norm_one_plus = false;  ///< as in RmsNorm
};

/// The rules that its arguments keep, but for the numbers in tables.
void check(const RopeKvWrite& op, Device device);

void rope_kv_write(Queue& queue, const RopeKvWrite& op);

}  // namespace hyb::kernels
