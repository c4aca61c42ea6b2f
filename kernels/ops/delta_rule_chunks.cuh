#pragma once

#include <cstdint>

#include "kernels/cuda/chunk_tile.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/delta_rule.cuh"
#include "kernels/ops/recurrence.h"

/// The chunked form of the delta rule. With L_t the sum of the tokens' log keep from the chunk's
/// first to t, and S the state before the chunk,
///
///   d = A (v - exp(L) S^T k')      A = (1 + M)^-1 beta
///   y = exp(L) S^T q' + B d        M_ts = beta_t exp(L_t - L_s) k'_t k'_s    s < t
///   S <- exp(L_last) S             B_ts = exp(L_t - L_s) q'_t k'_s           s <= t
///        + sum_s k'_s exp(L_last - L_s) d_s
///
/// A and B do not depend on the state: one launch makes them for all chunks at once, a second walks
/// each span's chunks. k and q are used as they came: their lengths are part of tokens' factors.
///
/// With decays per channel L is a row of numbers, one for each row of S, and
///
///   M_ts = beta_t sum_i exp(L_ti - L_si) k'_ti k'_si      B_ts as M_ts, of q'_t, without beta_t
///
/// The first launch also makes k' exp(L), q' exp(L) and k' exp(L_last - L), which the second reads
/// in the place of k and q.
namespace hyb::kernels::cuda {

static_assert(chunk_tokens == delta_chunk_tokens);

/// Per token: of S^T k and of S^T q in the rules above, of k in the last; exp(L_last).
struct alignas(16) DeltaFactors {
  SharedArray<float, chunk_tokens> of_key, of_query, of_write;
  SharedArray<float, 4> total;  ///< the first only
};
static_assert(sizeof(DeltaFactors) == delta_factors_size * sizeof(float));

/// The parameters of the kernels; the state's type only counts at a span's ends.
struct DeltaChunkParams : DeltaRuleParams<bf16, void> {
  bool state_is_bf16;
  int spans;
  int tokens_min;         ///< of a span; shorter ones are skipped
  bf16 *solved, *scores;  ///< A, B: [places,heads,64,64]
  DeltaFactors* factors;  ///< [places,heads]; with decays per channel none, but
  /// k' exp(L), q' exp(L), k' exp(L_last - L): [places,heads,64,Dk]
  bf16 *keys, *queries, *writes;
  float* totals;       ///< exp(L_last): [places,heads,Dk]
  int x_step, y_step;  ///< from token to token: 64 of them stay below 2^31
};

__device__ __forceinline__ int delta_chunk_place(int first_token, int span) {
  return first_token / chunk_tokens + span;
}

/// Makes what the walk of the chunks reads, for `places` places.
void delta_rule_solve(Stream& stream, const DeltaChunkParams& params, std::int64_t places,
                      bool per_channel);

}  // namespace hyb::kernels::cuda
