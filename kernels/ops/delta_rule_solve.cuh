#pragma once

#include <cstdint>

#include "kernels/cuda/spans.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/delta_rule_chunk.cuh"

/// The launch that makes A, B and the factors of every chunk; delta_rule_chunk.cuh has the names.
namespace hyb::kernels::cuda {

/// 64 x 64 numbers whose rows are vectors apart by banks.
using DeltaMatrix = SharedArray<SharedArray<float, chunk_tokens + 4>, chunk_tokens>;

template <int Rows>
struct alignas(16) DeltaSolveShared {
  ChunkTile<chunk_tokens, Rows> q, k;
  DeltaMatrix system, solved;  ///< M; (1 + M)^-1 below its diagonal and on it
  SharedArray<float, chunk_tokens> sums, beta, q_factor, k_factor;  ///< sums: L
};

struct DeltaChunk {
  int first, tokens;  ///< tokens 0: no such chunk
};

/// The chunk at a place, by the whole block. Those of chains are made however short they are: some
/// for nothing.
__device__ __forceinline__ DeltaChunk delta_chunk_at(const DeltaChunkParams& p, int place) {
  int begun = 0;
  for (int first = 0; first < p.spans; first += static_cast<int>(blockDim.x)) {
    const int i = first + static_cast<int>(threadIdx.x);
    begun += sync_block_count(i < p.spans && delta_chunk_place(p.span_begin[i], i) <= place);
  }
  const int index = begun - 1;
  const SpanEntry span = span_at(p, index, p.spans);
  const int first = span.first + (place - delta_chunk_place(span.first, index)) * chunk_tokens;
  const bool is_short = span.last - span.first < p.tokens_min;
  if (first >= span.last || (is_short && !span.is_continued && !span.goes_on)) return {first, 0};
  return {first, span.last - first < chunk_tokens ? span.last - first : chunk_tokens};
}

/// L and beta, by one warp. Tokens that are not there write nothing and leave all.
template <int Rows>
__device__ __forceinline__ void make_gates(const DeltaChunkParams& p, int head,
                                           const DeltaChunk& chunk,
                                           DeltaSolveShared<Rows>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float bias = p.dt_bias[head], a_log = p.a_log[head];
  float logs[2], betas[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    logs[i] = betas[i] = 0.0F;
    if (t >= chunk.tokens) continue;
    const std::int64_t token = chunk.first + t;
    const float exact = log_keep(to_float(p.a[token * p.a_stride + head]), bias, a_log);
    logs[i] = exact < log_decay_min ? log_decay_min : exact;
    betas[i] = write_strength(to_float(p.b[token * p.b_stride + head]));
  }
  float sum = logs[0] + logs[1];
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const float below = shuffle_up(sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += below;
  }
  const float before = shuffle_up(sum, 1);
  shared.sums[2 * lane] = (lane == 0 ? 0.0F : before) + logs[0];
  shared.sums[2 * lane + 1] = sum;
  shared.beta[2 * lane] = betas[0];
  shared.beta[2 * lane + 1] = betas[1];
}

/// sum of the squares of half a row.
template <int Rows>
__device__ __forceinline__ float half_squares(const ChunkTile<chunk_tokens, Rows>& tile, int token,
                                              int half) {
  float squares = 0.0F;
#pragma unroll 2
  for (int i = 0; i < Rows / 2; i += 8) {
    float values[8];
    unpack(load16(tile.at(token, half * (Rows / 2) + i)), values);
#pragma unroll
    for (const float value : values) squares = fmaf(value, value, squares);
  }
  return squares;
}

/// What makes q and k q' and k', by two threads per token.
template <int Rows>
__device__ __forceinline__ void make_lengths(float q_scale, DeltaSolveShared<Rows>& shared) {
  const int token = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
  float q = half_squares(shared.q, token, half), k = half_squares(shared.k, token, half);
  q += shuffle_xor(q, 1);
  k += shuffle_xor(k, 1);
  if (half == 0) shared.q_factor[token] = 1.0F / sqrtf(q + delta_rule_eps) * q_scale;
  if (half == 1) shared.k_factor[token] = 1.0F / sqrtf(k + delta_rule_eps);
}

/// 16 tokens' products with all keys, by a warp, as mma_bf16 leaves them: M to shared memory, B to
/// `scores`.
template <int Rows>
__device__ __forceinline__ void make_products(DeltaSolveShared<Rows>& shared, bf16* scores) {
  constexpr int tiles = chunk_tokens / 8;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float by_k[tiles][4] = {}, by_q[tiles][4] = {};
#pragma unroll 1
  for (int r = 0; r < Rows; r += 16) {
    std::uint32_t k[4], q[4], right[4];
    ldmatrix_x4(k, shared.k.at(warp * 16 + lane % 16, r + lane / 16 * 8));
    ldmatrix_x4(q, shared.q.at(warp * 16 + lane % 16, r + lane / 16 * 8));
#pragma unroll
    for (int j = 0; j < tiles; j += 2) {
      ldmatrix_x4(right, shared.k.at(j * 8 + lane % 8 + lane / 16 * 8, r + lane / 8 % 2 * 8));
      mma_bf16(by_k[j], k, right[0], right[1]);
      mma_bf16(by_q[j], q, right[0], right[1]);
      mma_bf16(by_k[j + 1], k, right[2], right[3]);
      mma_bf16(by_q[j + 1], q, right[2], right[3]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = warp * 16 + lane / 4 + half * 8;
    const float sum = shared.sums[token], q_factor = shared.q_factor[token];
    const float strength = shared.beta[token] * shared.k_factor[token];
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const int key = j * 8 + lane % 4 * 2;
      float scored[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float decay = exp_not_above_one(sum - shared.sums[key + i]);
        const float factor = decay * shared.k_factor[key + i];
        const float m = strength * factor * by_k[j][2 * half + i];
        shared.system[token][key + i] = key + i < token ? m : 0.0F;
        scored[i] = key + i <= token ? q_factor * factor * by_q[j][2 * half + i] : 0.0F;
      }
      store_pair(scores + token * chunk_tokens + key, scored[0], scored[1]);
    }
  }
}

/// (1 + M)^-1 of the warp's 16 x 16 block on the diagonal, forwards; a lane owns a column.
__device__ __forceinline__ void solve_diagonal(const DeltaMatrix& system, DeltaMatrix& solved) {
  const int first = static_cast<int>(threadIdx.x) / warp_size * 16;
  const int lane = static_cast<int>(threadIdx.x) % warp_size, column = lane % 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      float m[4];
      unpack(load16(&system[first + i][first + j]), m);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (j + n < i) x[i] = fmaf(-m[n], x[j + n], x[i]);
      }
    }
  }
  if (lane >= 16) return;
#pragma unroll
  for (int i = 0; i < 16; ++i) solved[first + i][first + column] = x[i];
}

/// sums[m] += sum over n in [begin, end) of left[row + 2m][n] * right[n][column]
__device__ __forceinline__ void add_products(const DeltaMatrix& left, int row,
                                             const DeltaMatrix& right, int column, int begin,
                                             int end, float (&sums)[8]) {
#pragma unroll 1
  for (int n = begin; n < end; n += 4) {
    const float r[4] = {right[n][column], right[n + 1][column], right[n + 2][column],
                        right[n + 3][column]};
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      float l[4];
      unpack(load16(&left[row + 2 * m][n]), l);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m] = fmaf(l[i], r[i], sums[m]);
    }
  }
}

/// The warp's 16 columns below the diagonal, 16 rows by 16 rows downwards; a lane owns every second
/// row of a column: X_i = -X_ii sum_j M_ij X_j.
__device__ __forceinline__ void solve_below(const DeltaMatrix& system, DeltaMatrix& solved) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int column = warp * 16 + lane % 16;
#pragma unroll 1
  for (int i = warp + 1; i < chunk_warps; ++i) {
    const int row = i * 16 + lane / 16;
    float sums[8] = {}, answers[8] = {};
    add_products(system, row, solved, column, warp * 16, i * 16, sums);
#pragma unroll
    for (int m = 0; m < 8; ++m) solved[row + 2 * m][column] = sums[m];
    sync_warp();
    add_products(solved, row, solved, column, i * 16, i * 16 + 16, answers);
    sync_warp();
#pragma unroll
    for (int m = 0; m < 8; ++m) solved[row + 2 * m][column] = -answers[m];
    sync_warp();
  }
}

/// A and the factors go to memory.
template <int Rows>
__device__ __forceinline__ void store_solved(const DeltaSolveShared<Rows>& shared, bf16* solved,
                                             DeltaFactors& factors) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int i = thread; i < chunk_tokens * chunk_tokens / 2; i += chunk_threads) {
    const int token = i / (chunk_tokens / 2), key = i % (chunk_tokens / 2) * 2;
    float pair[2];
    for (int j = 0; j < 2; ++j) {
      pair[j] = key + j <= token ? shared.solved[token][key + j] * shared.beta[key + j] : 0.0F;
    }
    store_pair(solved + 2 * i, pair[0], pair[1]);
  }
  if (thread >= chunk_tokens) return;
  const float total = shared.sums[chunk_tokens - 1], sum = shared.sums[thread];
  factors.of_key[thread] = exp_not_above_one(sum) * shared.k_factor[thread];
  factors.of_query[thread] = exp_not_above_one(sum) * shared.q_factor[thread];
  factors.of_write[thread] = exp_not_above_one(total - sum) * shared.k_factor[thread];
  if (thread < 4) factors.total[thread] = exp_not_above_one(total);
}

/// grid (heads, places): a block makes one chunk of one head. The system is solved in f32; A and B
/// are rounded to bf16.
template <int Rows>
__global__ void __launch_bounds__(chunk_threads, 3)
    delta_rule_solve_kernel(const DeltaChunkParams p) {
  auto& shared = dynamic_shared<DeltaSolveShared<Rows>>();
  const int head = static_cast<int>(blockIdx.x), place = static_cast<int>(blockIdx.y);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const DeltaChunk chunk = delta_chunk_at(p, place);
  if (chunk.tokens == 0) return;
  const bf16* const q = p.x + chunk.first * p.x_stride + p.q_of(head);
  copy_chunk(shared.q, q, p.x_step, chunk.tokens);
  copy_chunk(shared.k, q + p.k_distance(), p.x_step, chunk.tokens);
  cp_async_commit();
  if (threadIdx.x < warp_size) make_gates(p, head, chunk, shared);
  cp_async_wait<0>();
  sync_block();
  make_lengths(p.q_scale, shared);
  sync_block();
  const std::int64_t at = static_cast<std::int64_t>(place) * p.heads + head;
  make_products(shared, p.scores + at * delta_matrix_size);
  sync_block();
  solve_diagonal(shared.system, shared.solved);
  sync_block();
  solve_below(shared.system, shared.solved);
  sync_block();
  store_solved(shared, p.solved + at * delta_matrix_size, p.factors[at]);
}

}  // namespace hyb::kernels::cuda
