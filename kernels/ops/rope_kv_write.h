#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/kv_pages.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Rotary positions, half-split pairing, in place: of each head's first 2P values, P being the
/// number of frequencies, i and i + P are a pair; what follows them stays.
///
///   angle = position_of_row[t] * frequencies[i]
///   (x_i, x_j) <- (x_i cos - x_j sin, x_j cos + x_i sin)         i < P, j = i + P
///
/// shapes  x [T, heads*head_dim]; rows may be strided   position_of_row [T]
///         frequencies [P], radians per position, of host memory; read before the call returns
/// types   x: f32 or bf16   position_of_row: i32
/// numbers the angle, its sine and cosine in f64, then f32; rotated in f32, rounded once
/// writes  x
struct Rope {
  Tensor x, position_of_row;
  std::int64_t heads = 0, head_dim = 0;
  std::span<const double> frequencies = {};
  std::int64_t scaled_heads = 0;  ///< the first ones: (x_i, x_j) also times `scale`
  float scale = 1.0F;
};

void rope(Queue& queue, const Rope& op);

/// The layout of a page: kv head after kv head, each with its keys, then its values.
///
///   bf16, fp8   keys [head_dim/2][page_tokens][2]   values [page_tokens/2][head_dim][2]
///   f32         keys [head_dim][page_tokens]        values [page_tokens][head_dim]
///
/// so that one vector holds the same pair of dimensions of neighbouring keys, or the same pair of
/// positions of neighbouring value dimensions: what a pairwise dot product wants.
struct KvLayout {
  std::int64_t head_dim, page_tokens;
  std::int64_t pair;  ///< 2, of f32 1

  KvLayout(std::int64_t dim, std::int64_t tokens, std::size_t element_bytes)
      : head_dim(dim), page_tokens(tokens), pair(element_bytes == 4 ? 1 : 2) {}

  std::int64_t head_size() const { return 2 * head_dim * page_tokens; }
  std::int64_t key(std::int64_t place, std::int64_t i) const {
    return (i / pair * page_tokens + place) * pair + i % pair;
  }
  std::int64_t value(std::int64_t place, std::int64_t i) const {
    return head_dim * page_tokens + (place / pair * head_dim + i) * pair + place % pair;
  }
};

/// Puts the keys and values of a step into the pages of one attention layer. How a page is laid
/// out is private to kv_write and attention, the same at every ISA level; a page may be copied as
/// bytes, and places that no token has reached yet are never read.
///
/// shapes  k, v [T, kv_heads*head_dim]; rows may be strided
///         of a token pages have 2*kv_heads*head_dim numbers; page_tokens and head_dim are even
/// types   k, v: f32 or bf16, the same
/// numbers copied; rounded to nearest, ties to even, where pages hold fewer bits than k and v;
///         F8_E4M3 has scale 1: sizes above 448 become 448, NaN stays NaN
/// writes  the named places, nothing else; no two tokens may share a place
struct KvWrite {
  Tensor k, v;
  KvPages kv;
  std::int64_t kv_heads = 0, head_dim = 0;
};

void kv_write(Queue& queue, const KvWrite& op);

inline constexpr std::int64_t rope_kv_write_head_dim_max = 512;

/// A factor on the query at position p, so that attention stays sharp over more positions than
/// there were in training: 1 + beta * log(1 + floor((p + offset) / period)). beta 0: none.
struct QueryScale {
  float beta = 0.0F;
  std::int64_t period = 1, offset = 0;
  bool is_rounded = true;  ///< to the type of the queries, before it is multiplied
  float rotated = 1.0F;  ///< on what rope turns of a query, and nothing else, in the same rounding

  float at(std::int64_t position) const;

  bool operator==(const QueryScale&) const = default;
};

/// Does what is between a fused projection and attention: rms_norm of every head of q and k where
/// there are weights for it, with weightless_norm without them, and with value_norm of every head
/// of v, without weights; rope on q and k, the factor on q, then kv_write of k and v.
///
///   qkv[t] = q heads, if any, then k heads, then v heads, then anything
///   with queries_only q heads, then anything: nothing is written, as another layer's keys are read
///
/// shapes  qkv [T, (heads + 2*kv_heads)*head_dim] or wider; rows may be strided
///         position_of_row [T], not read where there are no frequencies and q has no factor; else
///         position_of_row[t] is the token's position as kv_write counts it   head_dim at most 512
///         q_norm, k_norm [head_dim] or empty (k_norm with queries_only)   all else as in kv_write
/// types   qkv: f32 or bf16   q_norm, k_norm: f32   position_of_row: i32
/// numbers as in rms_norm and rope: q, k and v are rounded to the type of qkv after either, q
///         after its factor, k and v before they go to the pages
/// writes  the columns of q, and the named places of the pages. The columns of k and v may hold
///         either before or after its norm and rotation: a route need not write them back.
struct RopeKvWrite {
  Tensor qkv, position_of_row;
  KvPages kv;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::span<const double> frequencies = {};  ///< as in Rope; empty: q and k stay as they are
  Tensor q_norm = {}, k_norm = {};
  float norm_eps = 1e-6F;
  bool norm_one_plus = false;  ///< as in RmsNorm
  bool value_norm = false, queries_only = false;
  bool weightless_norm = false;  ///< of every head of q and k, without weights
  QueryScale query_scale = {};

  bool reads_positions() const { return !frequencies.empty() || query_scale.beta != 0.0F; }
  /// Heads of keys in qkv, and as many of values.
  std::int64_t own_kv_heads() const { return queries_only ? 0 : kv_heads; }
};

/// The rules that its arguments keep, but for the numbers in tables.
void check(const RopeKvWrite& op, Device device);

void rope_kv_write(Queue& queue, const RopeKvWrite& op);

}  // namespace hyb::kernels
