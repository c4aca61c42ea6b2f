#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/vectors.h"
#include "kernels/ops/rope_kv_write.h"

/// This file has what rope_kv_write and attention_step do to a head of q, k or v: the same
/// instructions, spelled so that no compiler fuses them in one place and not in another, and so the
/// same bits. `lanes` threads have a head of one token, each some pieces of it. Sine and cosine are
/// within 2^-21 of the contract's for positions below 2^27, a norm within (head_dim + 8) * 2^-24 of
/// the exact one, relatively; all else is exact.
namespace hyb::kernels::cuda {

template <int PairsMax>
struct RopeParams {
  const float *q_norm, *k_norm;  ///< null: none
  int head_dim, heads, kv_heads, pairs;
  int lanes;  ///< of a head: a power of two, at most a warp
  float norm_eps, norm_offset;
  bool value_norm, weightless_norm;
  float query_beta;  ///< of QueryScale; 0: none
  int query_period, query_offset;
  bool query_rounded;
  float query_rotated;                  ///< on the turned part of q
  double turns_per_position[PairsMax];  ///< of each pair: its frequency / (2 pi)

  __device__ bool reads_position() const { return pairs > 0 || query_beta != 0.0F; }
  __device__ bool has_norms() const {
    return q_norm != nullptr || k_norm != nullptr || value_norm || weightless_norm;
  }
};

/// Says whether heads can be taken in pieces of eight elements.
template <typename T, typename K>
bool has_eights(const RopeKvWrite& op) {
  return op.head_dim % 16 == 0 && op.frequencies.size() % 8 == 0 &&
         is_vector_aligned(op.qkv.as<T>(), op.qkv.row_stride) &&
         is_vector_aligned(op.kv.arena.as<K>(), op.kv.arena.row_stride) &&
         is_vector_aligned(op.q_norm.as<float>(), 0) && is_vector_aligned(op.k_norm.as<float>(), 0);
}

template <int PairsMax>
RopeParams<PairsMax> rope_params(const RopeKvWrite& op, bool in_eights) {
  const auto pieces_of_head = static_cast<unsigned>(op.head_dim / (in_eights ? 16 : 2));
  RopeParams<PairsMax> params = {
      .q_norm = op.q_norm.as<float>(),
      .k_norm = op.k_norm.as<float>(),
      .head_dim = static_cast<int>(op.head_dim),
      .heads = static_cast<int>(op.heads),
      .kv_heads = static_cast<int>(op.own_kv_heads()),
      .pairs = static_cast<int>(op.frequencies.size()),
      .lanes = std::min(warp_size, static_cast<int>(std::bit_ceil(pieces_of_head))),
      .norm_eps = op.norm_eps,
      .norm_offset = op.norm_one_plus ? 1.0F : 0.0F,
      .value_norm = op.value_norm,
      .weightless_norm = op.weightless_norm,
      .query_beta = op.query_scale.beta,
      .query_period = static_cast<int>(op.query_scale.period),
      .query_offset = static_cast<int>(op.query_scale.offset),
      .query_rounded = op.query_scale.is_rounded,
      .query_rotated = op.query_scale.rotated,
      .turns_per_position = {}};
  constexpr double turn = 6.283185307179586477;
  for (std::size_t i = 0; i < op.frequencies.size(); ++i) {
    params.turns_per_position[i] = op.frequencies[i] / turn;
  }
  return params;
}

/// Holds the turns of one position's pairs, and the factor on its queries, in shared memory.
template <int PairsMax>
struct RopeTurns {
  SharedArray<float, PairsMax> sine, cosine;
  SharedArray<float, 1> query;
};

/// Is called by a whole block. The angle is position * frequency in f64; whole turns are taken off
/// there, so that what is left is exact enough for f32 at every position.
template <int PairsMax>
__device__ __forceinline__ void fill_turns(const RopeParams<PairsMax>& p, int position,
                                           RopeTurns<PairsMax>& turns) {
  for (int i = static_cast<int>(threadIdx.x); i < p.pairs; i += static_cast<int>(blockDim.x)) {
    const double at = position, per_position = p.turns_per_position[i];
    const double whole = rint(at * per_position);
    sine_cosine_of_turns(static_cast<float>(fma(at, per_position, -whole)), turns.sine[i],
                         turns.cosine[i]);
  }
  if (p.query_beta != 0.0F && threadIdx.x == 0) {
    const auto periods = static_cast<float>((position + p.query_offset) / p.query_period);
    turns.query[0] = 1.0F + product_rounded(p.query_beta, logf(1.0F + periods));
  }
}

/// Elements first .. and second .. of a head, Vector (8 or 1) of each: the halves of pairs, or two
/// neighbouring pieces of what is not rotated.
struct HeadPiece {
  int first, second, pair;  ///< pair: of the first element; -1: not rotated
};

/// Holds what a thread has of a head: 8 / Vector pieces.
struct HeadHalves {
  float first[8] = {}, second[8] = {};
};

/// `Vector` elements, to or from values[at] on.
template <int Vector, typename T>
__device__ __forceinline__ void load_piece(const T* from, float (&values)[8], int at) {
  if constexpr (Vector == 8) {
    load_eight<true>(from, Vector, values);
  } else {
    values[at] = to_float(*from);
  }
}
template <int Vector, typename T>
__device__ __forceinline__ void store_piece(T* to, const float (&values)[8], int at) {
  if constexpr (Vector == 8) {
    store_eight<true>(to, Vector, values);
  } else {
    *to = rounded<T>(values[at]);
  }
}

/// A thread's part of a head. Heads are counted as in qkv: of q, then of k, then of v.
template <int Vector, int PairsMax>
struct RopeHead {
  const RopeParams<PairsMax>& p;
  int head, lane;
  bool is_there;  ///< a thread without a head does what whole warps do and nothing else
  bool is_whole;  ///< pieces of q that stay as they are are taken, too

  __device__ bool is_q() const { return head < p.heads; }
  __device__ bool is_v() const { return head >= p.heads + p.kv_heads; }
  __device__ const float* norm() const { return is_q() ? p.q_norm : is_v() ? nullptr : p.k_norm; }
  __device__ bool has_norm() const {
    return is_v() ? p.value_norm : p.weightless_norm || norm() != nullptr;
  }

  template <typename Body>
  __device__ __forceinline__ void for_each_piece(Body&& body) const {
    if (!is_there) return;
    const int pairs = is_v() ? 0 : p.pairs;
#pragma unroll
    for (int j = 0; j < 8 / Vector; ++j) {
      const int i = lane + j * p.lanes, at = i * Vector;
      const int unrotated = 2 * pairs + 2 * (at - pairs);
      const HeadPiece piece =
          at < pairs ? HeadPiece{at, at + pairs, at} : HeadPiece{unrotated, unrotated + Vector, -1};
      const bool is_wanted =
          is_whole || !is_q() || piece.pair >= 0 || has_norm() || p.query_beta != 0.0F;
      if (i < p.head_dim / (2 * Vector) && is_wanted) body(piece, j * Vector);
    }
  }

  template <typename T>
  __device__ __forceinline__ void load(const T* from, HeadHalves& values) const {
    for_each_piece([&](const HeadPiece& piece, int at) {
      load_piece<Vector>(from + piece.first, values.first, at);
      load_piece<Vector>(from + piece.second, values.second, at);
    });
  }
  __device__ __forceinline__ void load_norm(HeadHalves& weights) const {
    if (norm() != nullptr) return load(norm(), weights);
    for (int i = 0; i < 8; ++i) weights.first[i] = weights.second[i] = 1.0F - p.norm_offset;
  }

  /// rms_norm of the head, rounded to T; the sum is in the same order for every token. By whole
  /// warps, also where a head has no norm.
  template <typename T>
  __device__ __forceinline__ void apply_norm(const HeadHalves& weights, HeadHalves& x) const {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      squares = fmaf(x.second[i], x.second[i], fmaf(x.first[i], x.first[i], squares));
    }
    for (int bits = p.lanes / 2; bits > 0; bits /= 2) squares += shuffle_xor(squares, bits);
    if (!has_norm()) return;
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.head_dim) + p.norm_eps);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float first = x.first[i] * scale * (p.norm_offset + weights.first[i]);
      const float second = x.second[i] * scale * (p.norm_offset + weights.second[i]);
      x.first[i] = to_float(rounded<T>(first));
      x.second[i] = to_float(rounded<T>(second));
    }
  }

  /// Rotates what is at `at`, rounded to T; a piece that is not rotated stays. Then the factor on
  /// queries.
  template <typename T>
  __device__ __forceinline__ void rotate(const HeadPiece& piece, int at,
                                         const RopeTurns<PairsMax>& turns, HeadHalves& x) const {
    if (piece.pair >= 0) turn<T>(piece, at, turns, x);
    if (!is_q() || p.query_beta == 0.0F) return;
    const float exact = turns.query[0];
    const float factor = p.query_rounded ? to_float(rounded<T>(exact)) : exact;
#pragma unroll
    for (int i = at; i < at + Vector; ++i) {
      x.first[i] = to_float(rounded<T>(product_rounded(x.first[i], factor)));
      x.second[i] = to_float(rounded<T>(product_rounded(x.second[i], factor)));
    }
  }

  template <typename T>
  __device__ __forceinline__ void turn(const HeadPiece& piece, int at,
                                       const RopeTurns<PairsMax>& turns, HeadHalves& x) const {
#pragma unroll
    for (int i = at; i < at + Vector; ++i) {
      const float low = x.first[i], high = x.second[i], scale = is_q() ? p.query_rotated : 1.0F;
      const float cosine = product_rounded(turns.cosine[piece.pair + i - at], scale),
                  sine = product_rounded(turns.sine[piece.pair + i - at], scale);
      x.first[i] = to_float(rounded<T>(fmaf(low, cosine, -product_rounded(high, sine))));
      x.second[i] = to_float(rounded<T>(fmaf(high, cosine, product_rounded(low, sine))));
    }
  }
};

}  // namespace hyb::kernels::cuda
