#pragma once

#include <algorithm>

#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/room.h"

/// What the CUDA routes of moe share. Included by .cu files only.
namespace hyb::kernels::cuda {

/// Row counts that few_moe may have, and visits (rows times active experts) of them.
inline constexpr std::int64_t few_tokens_max = 16;
inline constexpr std::int64_t few_visits_max = 512;
inline constexpr std::int64_t few_experts_max = 1024;  ///< whose keys fit beside the rows of x

/// Tokens of a tile of the grouped product, at least.
inline constexpr int tile_tokens_min = 16;
/// More tiles than this there never are: every expert that is visited may have one that is not
/// full.
inline constexpr std::int64_t tiles_max(std::int64_t visits, std::int64_t experts,
                                        int tile_tokens) {
  return visits / tile_tokens + std::min(experts, visits);
}

/// A visit is one token's to one of its experts: number t * k + j. A place is a visit's place when
/// those of an expert lie side by side, experts in ascending order, tokens too.
struct MoeRoom {
  static constexpr std::int64_t tickets_max = 16;
  Tensor tickets;                          ///< zeros between calls; where it stands never changes
  Tensor normed, logits;                   ///< [T,H], [T,E] f32
  Tensor chosen, weights;                  ///< [T,k]
  Tensor latent, latent_sum;               ///< [T,L]: what experts see and make
  Tensor shared_product, shared;           ///< [T,2S or S], [T,S]
  Tensor shared_logit;                     ///< few: [T] of a gate
  Tensor shared_output;                    ///< many: [T,H] with a gate
  Tensor visited, visitors;                ///< few: [1+V] count, then experts; [V,16] visit or -1
  Tensor first_place, visit_of, place_of;  ///< many: [E+1], [T*k], [T*k]
  Tensor tiles;    ///< many: [1+N,2] count, then expert and first place of each
  Tensor inner;    ///< [T*k,I] by visit (few) or by place (many)
  Tensor outputs;  ///< [T*k,H or L] by place
  std::size_t bytes;

  MoeRoom(const MoeShape& shape, std::byte* base) {
    Room room(base);
    const std::int64_t tokens = shape.tokens, visits = tokens * shape.active;
    const std::int64_t few_visits = std::min({tokens, few_tokens_max}) * shape.active;
    const std::int64_t visited_max = std::min(shape.experts, few_visits);
    const std::int64_t halves = shape.activation == Activation::silu_gated ? 2 : 1;
    tickets = room.take(DType::u32, 1, tickets_max);
    normed = room.take(shape.dtype, tokens, shape.hidden);
    logits = room.take(DType::f32, tokens, shape.experts);
    chosen = room.take(DType::i32, tokens, shape.active);
    weights = room.take(DType::f32, tokens, shape.active);
    latent = room.take(shape.dtype, tokens, shape.latent);
    latent_sum = room.take(shape.dtype, tokens, shape.latent);
    shared_product = room.take(shape.dtype, tokens, halves * shape.shared_intermediate);
    shared = room.take(shape.dtype, tokens, shape.shared_intermediate);
    const std::int64_t gated_tokens = shape.has_shared_gate ? tokens : 0;
    shared_logit = room.take(DType::f32, 1, std::min(gated_tokens, few_tokens_max));
    shared_output = room.take(shape.dtype, gated_tokens, shape.hidden);
    visited = room.take(DType::i32, 1, 1 + visited_max);
    visitors = room.take(DType::i32, visited_max, few_tokens_max);
    first_place = room.take(DType::i32, 1, shape.experts + 1);
    visit_of = room.take(DType::i32, 1, visits);
    place_of = room.take(DType::i32, 1, visits);
    tiles = room.take(DType::i32, 1 + tiles_max(visits, shape.experts, tile_tokens_min), 2);
    inner = room.take(shape.dtype, visits, shape.intermediate);
    outputs = room.take(shape.dtype, visits, shape.expert_width());
    bytes = room.bytes();
  }
};

/// Rows that can be read in vectors of whole k: bf16 or f32 in multiples of 8 at multiples of 16
/// bytes.
inline bool takes_pieces(const Weight& weight) {
  if (weight.code() != WeightCode::plain || weight.columns() % 8 != 0) return false;
  const std::byte* const rows = weight.expert(0);
  if (weight.dtype() == DType::f32)
    return is_vector_aligned(reinterpret_cast<const float*>(rows), 8);
  return weight.dtype() == DType::bf16 && is_vector_aligned(reinterpret_cast<const bf16*>(rows), 8);
}

/// The same of bf16 alone.
inline bool takes_vectors(const Weight& weight) {
  return weight.dtype() == DType::bf16 && takes_pieces(weight);
}
inline bool takes_vectors(const Tensor& rows) {
  return rows.dtype == DType::bf16 && is_vector_aligned(rows.as<bf16>(), rows.row_stride);
}

/// Up to few_tokens_max rows of bf16, where few_takes says so.
void few_moe(Stream& stream, const Moe& op, const MoeRoom& room);
bool few_takes(const Stream& stream, const Moe& op, const MoeShape& shape);

/// logits = x * router^T in f32, as linear has them; of bf16 rows with a router of f32 by a route
/// of its own.
void router_logits(Stream& stream, const Tensor& x, const Weight& router, const Tensor& logits);

/// From chosen to first_place, visit_of, place_of and tiles.
void sort_visits(Stream& stream, const MoeShape& shape, const MoeRoom& room, int tile_tokens);

/// The visited experts' products of the rows of x: inner and outputs, by place.
struct ExpertProducts {
  Tensor x;
  const Weight *gate_up, *down;
  Activation activation;
  MoeShape shape;
};
/// Any type, any alignment.
void plain_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room);
/// bf16 whose rows are multiples of 16 bytes at such addresses. Needs the tiles of
/// tile_tokens(shape).
void tile_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room);
int tile_tokens(const MoeShape& shape);

/// y = (add ? y : 0) + scale * (weighted sum of outputs + sigmoid(gate . gate_x) * shared_output)
struct VisitSum {
  Tensor y;
  std::int64_t active;  ///< 0: only what the gate lets through
  float scale;
  bool add;
  Tensor gate_x = {};            ///< [T,H], with a gate
  const Weight* gate = nullptr;  ///< null: without the second term
};
void sum_visits(Stream& stream, const VisitSum& sum, const MoeRoom& room);

}  // namespace hyb::kernels::cuda
