#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/linear/linear.cuh"
#include "kernels/ops/moe.h"

/// This file has what the CUDA routes of moe share. Included by .cu files only.
namespace hyb::kernels::cuda {

/// Row counts that small_batch_moe may have, and visits (rows times active experts) of them.
inline constexpr std::int64_t small_batch_tokens_max = 16;
inline constexpr std::int64_t small_batch_visits_max = 512;
inline constexpr std::int64_t small_batch_experts_max =
    1024;  ///< whose keys fit in shared memory with the rows of x

/// Tokens of a tile of the grouped product, at least.
inline constexpr int tile_tokens_min = 16;
/// More tiles than this there never are: every expert that is visited may have one that is not
/// full.
inline constexpr std::int64_t tiles_max(std::int64_t visits, std::int64_t experts,
                                        int tile_tokens) {
  return visits / tile_tokens + std::min(experts, visits);
}

/// A visit is one token's to one of its experts: number t * k + j. A place is a visit's place when
/// those of an expert are contiguous, experts in ascending order, tokens too.
struct MoeRoom {
  static constexpr std::int64_t semaphores_max = 16;
  Tensor semaphores;                       ///< zeros between calls; its address never changes
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
    const std::int64_t few_visits = std::min({tokens, small_batch_tokens_max}) * shape.active;
    const std::int64_t visited_max = std::min(shape.experts, few_visits);
    semaphores = room.take(DType::u32, 1, semaphores_max);
    normed = room.take(shape.dtype, tokens, shape.hidden);
    logits = room.take(DType::f32, tokens, shape.experts);
    chosen = room.take(DType::i32, tokens, shape.active);
    weights = room.take(DType::f32, tokens, shape.active);
    latent = room.take(shape.dtype, tokens, shape.own_width());
    latent_sum = room.take(shape.dtype, tokens, shape.latent);
    shared_product =
        room.take(shape.dtype, tokens, shape.activation.inputs() * shape.shared_intermediate);
    shared = room.take(shape.dtype, tokens, shape.shared_intermediate);
    const std::int64_t gated_tokens = shape.has_shared_gate ? tokens : 0;
    shared_logit = room.take(DType::f32, 1, std::min(gated_tokens, small_batch_tokens_max));
    shared_output = room.take(shape.dtype, gated_tokens, shape.hidden);
    visited = room.take(DType::i32, 1, 1 + visited_max);
    visitors = room.take(DType::i32, visited_max, small_batch_tokens_max);
    first_place = room.take(DType::i32, 1, shape.experts + 1);
    visit_of = room.take(DType::i32, 1, visits);
    place_of = room.take(DType::i32, 1, visits);
    tiles = room.take(DType::i32, 1 + tiles_max(visits, shape.experts, tile_tokens_min), 2);
    inner = room.take(shape.dtype, visits, shape.intermediate);
    outputs = room.take(shape.dtype, visits, shape.expert_width());
    bytes = room.bytes();
  }
};

/// Rows that can be read in vectors of whole k: codes, bf16 or f32 in multiples of 8, at multiples
/// of 16 bytes, and belong to the columns of x in their order.
inline bool takes_pieces(const Weight& weight) {
  if (weight.columns() % 8 != 0 || !weight.parts().empty() || !weight.order(0).empty()) {
    return false;
  }
  const std::byte* const rows = weight.expert(0);
  if (weight.dtype() == DType::f32)
    return is_vector_aligned(reinterpret_cast<const float*>(rows), 8);
  return weight.dtype() == DType::bf16 && is_vector_aligned(reinterpret_cast<const bf16*>(rows), 8);
}

/// The same of codes and bf16 alone.
inline bool takes_vectors(const Weight& weight) {
  return weight.dtype() == DType::bf16 && takes_pieces(weight);
}
/// And read by the same code as another one, where it is there.
inline bool is_like(const Weight* weight, const Weight& other) {
  return weight == nullptr || (weight->code() == other.code() && weight->type() == other.type() &&
                               takes_vectors(*weight));
}
inline bool takes_vectors(const Tensor& rows) {
  return rows.dtype == DType::bf16 && is_vector_aligned(rows.as<bf16>(), rows.row_stride);
}

/// Up to small_batch_tokens_max rows of bf16, where small_batch_takes says so.
void small_batch_moe(Stream& stream, const FusedMoe& op, const MoeRoom& room);
bool small_batch_takes(const Stream& stream, const FusedMoe& op, const MoeShape& shape);

/// logits = x * router^T + bias in f32, as linear has them; of bf16 rows with a router of f32 by a
/// route of its own.
void router_logits(Stream& stream, const Tensor& x, const Weight& router, const Tensor& bias,
                   const Tensor& logits);

/// From chosen to first_place, visit_of, place_of and tiles.
void sort_visits(Stream& stream, const MoeShape& shape, const MoeRoom& room, int tile_tokens);

/// The visited experts' products of the rows of x: inner and outputs, by place.
struct ExpertProducts {
  Tensor x;
  const Weight *gate_up, *down;
  const float *gate_up_bias, *down_bias;  ///< of all experts' rows; null: 0
  Activation activation;
  MoeShape shape;
};
/// Any type, any alignment.
void plain_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room);
/// takes_vectors of all, each weight with a code of its own or none. Needs the tiles of
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

// Products of a weight of bf16 or codes with up to 16 rows of x, for a weight that is read once:
// its 16-byte pieces go from memory to registers and into the matrix instruction, as they are or
// past the decoder. Included by .cu files only.
//
// A warp owns `Groups` times 8 rows of the weight, which are the 8 columns of the instruction; the
// rows of x are its 16 rows. Lane l holds row l/4 of a group, and rows l/4 and l/4+8 of x: always
// elements 8*(l%4) .. 8*(l%4)+7 of 32, which both sides give to the instruction in one order of
// our own. k goes in chunks of 64, so that a row's 128 bytes are loaded together.

inline constexpr int skinny_rows_max = 16;  ///< of x
inline constexpr int skinny_group = 8;      ///< rows of the weight
inline constexpr int skinny_chunk = 64;

/// The weight's pieces of `Chunks` chunks on their way to the registers: of both halves of a chunk,
/// with codes of the whole chunk and then in x and y the scales.
template <int Groups, int Chunks>
struct SkinnyPieces {
  uint4 values[Chunks][2][Groups];
};

/// Chunks first, first+step, ... of a sum over k. inner is a multiple of 8.
struct SkinnyRange {
  int inner, first, step;

  /// Returns where this lane's piece of chunk i starts; not below inner: there is none.
  __device__ int k(int i, int half) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    return (first + i * step) * skinny_chunk + half * 32 + lane % 4 * 8;
  }
};

/// Piece (i, half) of the rows, this lane's of every group.
template <int Groups, int Chunks>
__device__ __forceinline__ void load_piece(SkinnyPieces<Groups, Chunks>& to, int i, int half,
                                           const bf16* const (&rows)[Groups],
                                           const SkinnyRange& range) {
  const int k = range.k(i, half);
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    to.values[i][half][g] = k < range.inner ? load16_once(rows[g] + k) : uint4{};
  }
}

template <WeightCode Code, int Groups, int Chunks>
__device__ __forceinline__ void load_piece(SkinnyPieces<Groups, Chunks>& to, int i, int half,
                                           const LaneRow<Code> (&rows)[Groups],
                                           const SkinnyRange& range) {
  static_assert(skinny_chunk == half_columns);
  const int at = range.first + i * range.step;
  const bool is_there = at * skinny_chunk < range.inner;
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    uint4& value = to.values[i][half][g];
    value = {};
    if (!is_there) continue;
    if (half == 0) {
      value = load_codes_once<Code>(rows[g].codes + at * LaneCodes<Code>::half_bytes);
      if constexpr (has_upper_bits<Code>) value.z = rows[g].upper(at);
    } else {
      const uint2 scales = rows[g].scales(at);
      value.x = scales.x;
      value.y = scales.y;
    }
  }
}

/// Loads what codes leave of both groups' numbers, then their codes.
template <int Groups, int Chunks>
__device__ __forceinline__ void load_piece(SkinnyPieces<Groups, Chunks>& to, int i, int half,
                                           const LaneRow<WeightCode::bits12> (&rows)[Groups],
                                           const SkinnyRange& range) {
  static_assert(skinny_chunk == Bits12RowsShape::half_columns);
  const int at = range.first + i * range.step;
  const bool is_there = at * skinny_chunk < range.inner;
  const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    uint4& value = to.values[i][half][g];
    value = {};
    if (!is_there) continue;
    const std::byte* const from = rows[g].codes + at * Bits12RowsShape::half_bytes;
    if (half == 0) {
      value = load16_once(from + q * 16);
    } else {
      const uint2 codes = load8(from + Bits12RowsShape::codes_at + q * 8);
      value = {codes.x, codes.y, 0, 0};
    }
  }
}

/// Holds what multiplying changes of rows: nothing, but of 12 bits.
struct NoLaneRows {};
template <typename Row, int Groups>
__device__ __forceinline__ NoLaneRows lane_rows(const Row (&)[Groups]) {
  return {};
}
template <int Groups>
__device__ __forceinline__ Bits12LaneRows<Groups> lane_rows(
    const LaneRow<WeightCode::bits12> (&rows)[Groups]) {
  Bits12LaneRows<Groups> of;
#pragma unroll
  for (int g = 0; g < Groups; ++g) of.set(g, rows[g].header);
  of.start(rows[0].patches);
  return of;
}

template <typename Row, int Groups, int Chunks>
__device__ __forceinline__ void load_pieces(SkinnyPieces<Groups, Chunks>& to,
                                            const Row (&rows)[Groups], const SkinnyRange& range) {
#pragma unroll
  for (int i = 0; i < 2 * Chunks; ++i) load_piece(to, i / 2, i % 2, rows, range);
}

/// x(first, k): the 16 bytes at k of row l/4 + first, which is 0 or 8; zeros where the row ends or
/// is none. Without `is_high` rows from 8 on are not there. sums[g]: rows l/4 (0,1) and l/4+8 (2,3)
/// of x with weight rows 2*(l%4) and 2*(l%4)+1 of group g. Every piece that is used makes room for
/// one of `next_rows`.
template <int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_pieces(SkinnyPieces<Groups, Chunks>& pieces,
                                                const SkinnyRange& range, bool is_high, X&& x,
                                                float (&sums)[Groups][4], NoLaneRows&,
                                                const bf16* const (&next_rows)[Groups],
                                                const SkinnyRange& next) {
#pragma unroll
  for (int i = 0; i < 2 * Chunks; ++i) {
    const int k = range.k(i / 2, i % 2);
    const uint4 low = x(0, k), high = is_high ? x(skinny_rows_max / 2, k) : uint4{};
    const std::uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const std::uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      const uint4 weight = pieces.values[i / 2][i % 2][g];
      mma_bf16(sums[g], first, weight.x, weight.y);
      mma_bf16(sums[g], second, weight.z, weight.w);
    }
    load_piece(pieces, i / 2, i % 2, next_rows, next);
  }
}

/// x of 32 columns from `k` less the lane's own on, in the columns of its codes.
template <WeightCode Code, typename X>
__device__ __forceinline__ uint4 group_of_x(X&& x, int first_row, int k) {
  if constexpr (!has_sixteens<Code>) return x(first_row, k);
  const int q = static_cast<int>(threadIdx.x) % 4, from = k - q * 8 + q / 2 * 8;
  const uint4 first = x(first_row, from), last = x(first_row, from + 16);
  if (q % 2 == 0) return {first.x, first.y, last.x, last.y};
  return {first.z, first.w, last.z, last.w};
}

/// With codes the sum of 32 columns of levels meets its scale, which the lanes of the row have, and
/// the sum of x its minimum.
template <WeightCode Code, int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_pieces(SkinnyPieces<Groups, Chunks>& pieces,
                                                const SkinnyRange& range, bool is_high, X&& x,
                                                float (&sums)[Groups][4], NoLaneRows&,
                                                const LaneRow<Code> (&next_rows)[Groups],
                                                const SkinnyRange& next) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const GgufRowTraits& traits = next_rows[0].traits;
#pragma unroll
  for (int i = 0; i < Chunks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = range.k(i, half);
      const uint4 low = group_of_x<Code>(x, 0, k);
      const uint4 high = is_high ? group_of_x<Code>(x, skinny_rows_max / 2, k) : uint4{};
      float x_sums[4] = {};
      if (has_mins<Code>(traits)) {
        constexpr std::uint32_t one = 0x3f803f80U;
        mma_bf16(x_sums, {low.x, high.x, low.y, high.y}, one, one);
        mma_bf16(x_sums, {low.z, high.z, low.w, high.w}, one, one);
      }
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const uint4 weight = levels_of_group<Code>(pieces.values[i][0][g], half, traits);
        const uint4 own = pieces.values[i][1][g];
        GroupScales scales[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int lane_of_row = lane % 4 * 8 + j * 4;
          uint2 words = {shuffle(own.x, lane_of_row), 0};
          if constexpr (has_second_word<Code>) words.y = shuffle(own.y, lane_of_row);
          scales[j] = group_scales<Code>(words, range.first + i * range.step, half, traits);
        }
        float part[4] = {};
        mma_bf16(part, {low.x, high.x, low.y, high.y}, weight.x, weight.y);
        if constexpr (has_sixteens<Code>) {
#pragma unroll
          for (int t = 0; t < 4; ++t) {
            sums[g][t] += scales[t % 2].scale * part[t];
            part[t] = 0.0F;
          }
        }
        mma_bf16(part, {low.z, high.z, low.w, high.w}, weight.z, weight.w);
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const GroupScales& own_scales = scales[t % 2];
          sums[g][t] += (has_sixteens<Code> ? own_scales.other : own_scales.scale) * part[t];
          if (has_mins<Code>(traits)) sums[g][t] -= own_scales.other * x_sums[t];
        }
      }
    }
    load_piece(pieces, i, 0, next_rows, next);
    load_piece(pieces, i, 1, next_rows, next);
  }
}

/// In 12 bits: in the order of bf16.
template <int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_pieces(
    SkinnyPieces<Groups, Chunks>& pieces, const SkinnyRange& range, bool is_high, X&& x,
    float (&sums)[Groups][4], Bits12LaneRows<Groups>& own,
    const LaneRow<WeightCode::bits12> (&next_rows)[Groups], const SkinnyRange& next) {
#pragma unroll
  for (int i = 0; i < Chunks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = range.k(i, half);
      const uint4 low = x(0, k), high = is_high ? x(skinny_rows_max / 2, k) : uint4{};
      uint4 weight[Groups];
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const uint4 rest = pieces.values[i][0][g], codes = pieces.values[i][1][g];
        weight[g] = own.widen(g, half == 0 ? uint2{rest.x, rest.y} : uint2{rest.z, rest.w},
                              half == 0 ? codes.x : codes.y);
      }
      own.patch(k, weight);
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        mma_bf16(sums[g], {low.x, high.x, low.y, high.y}, weight[g].x, weight[g].y);
        mma_bf16(sums[g], {low.z, high.z, low.w, high.w}, weight[g].z, weight[g].w);
      }
    }
    load_piece(pieces, i, 0, next_rows, next);
    load_piece(pieces, i, 1, next_rows, next);
  }
}

/// All chunks of `range`, of which the first are in `pieces`.
template <typename Row, int Groups, int Chunks, typename X>
__device__ __forceinline__ void multiply_rows(SkinnyPieces<Groups, Chunks>& pieces,
                                              const Row (&rows)[Groups], SkinnyRange range,
                                              bool is_high, X&& x, float (&sums)[Groups][4]) {
  auto own = lane_rows(rows);
#pragma unroll 1
  while (range.first * skinny_chunk < range.inner) {
    SkinnyRange next = range;
    next.first += Chunks * range.step;
    multiply_pieces(pieces, range, is_high, x, sums, own, rows, next);
    range = next;
  }
}

/// Adds up what the warps of a block have, in their order. 16 rows of x, Groups * 8 of the weight.
template <int Groups, int Warps>
struct SkinnyTotals {
  static constexpr int columns = Groups * skinny_group;
  static constexpr int stride = columns + 1;
  SharedArray<float, Warps * skinny_rows_max * stride> values;

  __device__ void put(bool is_high, const float (&sums)[Groups][4]) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= 2 && !is_high) continue;
      const int row = lane / 4 + i / 2 * 8;
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const int column = g * skinny_group + lane % 4 * 2 + i % 2;
        values[(warp * skinny_rows_max + row) * stride + column] = sums[g][i];
      }
    }
  }

  /// After a barrier.
  __device__ float sum(int row, int column) const {
    float total = 0.0F;
    for (int warp = 0; warp < Warps; ++warp) {
      total += values[(warp * skinny_rows_max + row) * stride + column];
    }
    return total;
  }
};

// Products of an f32 weight with rows of bf16 by the matrix instructions of bf16: a number of 24
// bits is the sum of three of 8, and each of their products is exact. Included by .cu files only.

/// The rounded pair, of which what was lost stays in `low` and `high`.
__device__ __forceinline__ std::uint32_t take_bf16(float& low, float& high) {
  const std::uint32_t pair = pack_bf16(low, high);
  low -= std::bit_cast<float>(pair << 16);
  high -= std::bit_cast<float>(pair & 0xffff0000U);
  return pair;
}

/// Eight numbers as three times eight of bf16, the largest first. An infinity becomes NaN.
struct SplitPiece {
  std::uint32_t parts[3][4];

  __device__ SplitPiece(uint4 low, uint4 high) {
    const unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float first = std::bit_cast<float>(words[2 * i]);
      float second = std::bit_cast<float>(words[2 * i + 1]);
#pragma unroll
      for (int part = 0; part < 3; ++part) parts[part][i] = take_bf16(first, second);
    }
  }
};

/// A chunk of two groups of rows on its way to the registers: of each half the low and the high
/// four numbers.
using SplitPieces = SkinnyPieces<2, 2>;

__device__ __forceinline__ void load_piece(SplitPieces& to, int half, const float* const (&rows)[2],
                                           const SkinnyRange& range) {
  const int k = range.k(0, half);
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    const bool is_there = k < range.inner;
    to.values[half][0][g] = is_there ? load16_once(rows[g] + k) : uint4{};
    to.values[half][1][g] = is_there ? load16_once(rows[g] + k + 4) : uint4{};
  }
}

__device__ __forceinline__ void load_pieces(SplitPieces& to, const float* const (&rows)[2],
                                            const SkinnyRange& range) {
  load_piece(to, 0, rows, range);
  load_piece(to, 1, rows, range);
}

/// Works as multiply_rows above, for `Tiles` times 16 rows of x: x(row, k) has the 16 bytes at k of
/// row l/4 + row, which is 0 or 8 of a tile's 16; without `is_high` the latter are not there.
template <int Tiles, typename X>
__device__ __forceinline__ void multiply_rows(SplitPieces& pieces, const float* const (&rows)[2],
                                              SkinnyRange range, bool is_high, X&& x,
                                              float (&sums)[Tiles][2][4]) {
#pragma unroll 1
  while (range.first * skinny_chunk < range.inner) {
    SkinnyRange next = range;
    next.first += range.step;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = range.k(0, half);
      uint4 low[Tiles], high[Tiles];
#pragma unroll
      for (int m = 0; m < Tiles; ++m) {
        low[m] = x(m * skinny_rows_max, k);
        high[m] = is_high ? x(m * skinny_rows_max + skinny_rows_max / 2, k) : uint4{};
      }
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const SplitPiece weight(pieces.values[half][0][g], pieces.values[half][1][g]);
#pragma unroll
        for (const auto& part : weight.parts) {
#pragma unroll
          for (int m = 0; m < Tiles; ++m) {
            mma_bf16(sums[m][g], {low[m].x, high[m].x, low[m].y, high[m].y}, part[0], part[1]);
            mma_bf16(sums[m][g], {low[m].z, high[m].z, low[m].w, high[m].w}, part[2], part[3]);
          }
        }
      }
      load_piece(pieces, half, rows, next);
    }
    range = next;
  }
}

template <typename X>
__device__ __forceinline__ void multiply_rows(SplitPieces& pieces, const float* const (&rows)[2],
                                              const SkinnyRange& range, bool is_high, X&& x,
                                              float (&sums)[2][4]) {
  float tile[1][2][4] = {};
  multiply_rows(pieces, rows, range, is_high, x, tile);
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = tile[0][i / 4][i % 4];
}

}  // namespace hyb::kernels::cuda
