#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/delta_rule_chunks.cuh"

namespace hyb::kernels::cuda {

// The launch that makes A, B and the factors of every chunk, with the names of
// delta_rule_chunks.cuh.

/// 64 x 64 numbers whose rows are vectors apart by banks.
using DeltaMatrix = SharedArray<SharedArray<float, chunk_tokens + 4>, chunk_tokens>;

template <int Rows>
struct alignas(16) DeltaSolveShared {
  ChunkTile<chunk_tokens, Rows> q, k;
  DeltaMatrix system, solved;  ///< M; (1 + M)^-1 below its diagonal and on it
  SharedArray<float, chunk_tokens> sums, beta, q_factor, k_factor;  ///< sums: L
};

/// Holds a block's shared memory for chunks of decays per channel.
template <int Rows>
struct alignas(16) DeltaChannelShared {
  ChunkTile<chunk_tokens, Rows> q, k;
  DeltaMatrix system;
  union {  // the system is solved when sums are no longer needed
    SharedArray<SharedArray<float, Rows + 4>, chunk_tokens> sums;
    DeltaMatrix solved;
  };
  SharedArray<float, chunk_tokens> beta, q_factor, k_factor;
};

struct DeltaChunk {
  int first, tokens;  ///< tokens 0: no such chunk
};

/// The chunk at a place, by the whole block. Those of chains are made however short they are: some
/// for nothing.
__device__ __forceinline__ DeltaChunk delta_chunk_at(const DeltaChunkParams& p, int place) {
  int started = 0;
  for (int first = 0; first < p.spans; first += static_cast<int>(blockDim.x)) {
    const int i = first + static_cast<int>(threadIdx.x);
    started += sync_block_count(i < p.spans && delta_chunk_place(p.span_begin[i], i) <= place);
  }
  const int index = started - 1;
  const SpanEntry span = span_at(p, index, p.spans);
  const int first = span.first + (place - delta_chunk_place(span.first, index)) * chunk_tokens;
  const bool is_short = span.last - span.first < p.tokens_min;
  if (first >= span.last || (is_short && !span.continues_previous && !span.next_continues))
    return {first, 0};
  return {first, span.last - first < chunk_tokens ? span.last - first : chunk_tokens};
}

/// L and beta, by one warp. Tokens that are not there write nothing and leave all.
template <int Rows>
__device__ __forceinline__ void make_gates(const DeltaChunkParams& p, int head,
                                           const DeltaChunk& chunk,
                                           DeltaSolveShared<Rows>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float bias = p.dt_bias[head], rate = p.rate[head];
  float logs[2], betas[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    logs[i] = betas[i] = 0.0F;
    if (t >= chunk.tokens) continue;
    const std::int64_t token = chunk.first + t;
    const float exact = log_keep(to_float(p.a[token * p.a_stride + head]), bias, rate);
    logs[i] = exact < log_decay_min ? log_decay_min : exact;
    betas[i] = write_strength(to_float(p.b[token * p.b_stride + head]), p.beta_scale);
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

/// The number of L's, in f32, of every channel; and beta. exp2 of them is taken, so they count in
/// powers of two.
template <int Rows>
__device__ __forceinline__ void make_channel_gates(const DeltaChunkParams& p, int head,
                                                   const DeltaChunk& chunk,
                                                   DeltaChannelShared<Rows>& shared) {
  constexpr float log2_e = 1.44269504F;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_row = static_cast<std::int64_t>(head) * Rows;
  const float rate = p.rate[head];
  for (int row = thread; row < Rows; row += chunk_threads) {
    const float bias = p.dt_bias[first_row + row];
    const bf16* a = p.a + chunk.first * p.a_stride + first_row + row;
    float sum = 0.0F;
    for (int t = 0; t < chunk_tokens; ++t, a += p.a_stride) {
      if (t < chunk.tokens) {
        const float exact = log_keep(to_float(*a), bias, rate, p.decay_floor);
        sum += (exact < log_decay_min ? log_decay_min : exact) * log2_e;
      }
      shared.sums[t][row] = sum;
    }
  }
  if (thread >= chunk_tokens) return;
  const bf16* const b = p.b + (chunk.first + thread) * p.b_stride + head;
  shared.beta[thread] = thread < chunk.tokens ? write_strength(to_float(*b), p.beta_scale) : 0.0F;
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

/// Computes what makes q and k q' and k', by two threads per token.
template <typename Shared>
__device__ __forceinline__ void make_lengths(float q_scale, Shared& shared) {
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

/// Four neighbours of a row of a tile.
template <int Rows>
__device__ __forceinline__ void load_four(const ChunkTile<chunk_tokens, Rows>& tile, int token,
                                          int row, float (&values)[4]) {
  load_four(tile.at(token, row), values);
}

/// M and B where token and key are of the warp's 16, exactly as written: no power above one is
/// taken, however fast states decay. A lane has every 32nd of these pairs.
template <int Rows>
__device__ __forceinline__ void make_near_products(DeltaChannelShared<Rows>& shared, bf16* scores) {
  const int first = static_cast<int>(threadIdx.x) / warp_size * 16;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < 8 * 17; i += warp_size) {
    // Rows n and 15 - n have 17 keys together.
    const int n = i / 17, place = i % 17;
    const int token = first + (place <= n ? n : 15 - n);
    const int key = first + (place <= n ? place : place - n - 1);
    float by_k = 0.0F, by_q = 0.0F;
#pragma unroll 2
    for (int r = 0; r < Rows; r += 4) {
      float of_token[4], of_key[4], k[4], q[4], other[4];
      unpack(load16(&shared.sums[token][r]), of_token);
      unpack(load16(&shared.sums[key][r]), of_key);
      load_four(shared.k, token, r, k);
      load_four(shared.q, token, r, q);
      load_four(shared.k, key, r, other);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float kept = other[j] * exp2_fast(of_token[j] - of_key[j]);
        by_k = fmaf(k[j], kept, by_k);
        by_q = fmaf(q[j], kept, by_q);
      }
    }
    const float factor = shared.k_factor[key];
    shared.system[token][key] = shared.beta[token] * shared.k_factor[token] * factor * by_k;
    scores[token * chunk_tokens + key] = round_bf16(shared.q_factor[token] * factor * by_q);
    // The chunk's walk reads the block whole.
    if (key < token) scores[key * chunk_tokens + token] = {};
  }
}

/// Two neighbours of a row of a tile times powers of two, as an operand.
template <int Rows>
__device__ __forceinline__ std::uint32_t scaled_pair(const ChunkTile<chunk_tokens, Rows>& tile,
                                                     int token, int row, const float2& factor) {
  const float2 pair = load_pair(tile.at(token, row));
  return pack_bf16(pair.x * factor.x, pair.y * factor.y);
}

/// M and B of the warp's 16 tokens with all keys before them, by matrix instructions: decays are
/// taken up to the token before these and on from it, so that both powers are at most one. The
/// operands' rounding is within 2^-8 of the terms.
template <int Rows>
__device__ __forceinline__ void make_far_products(DeltaChannelShared<Rows>& shared, bf16* scores) {
  constexpr int tiles = (chunk_tokens - 16) / 8;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (warp == 0) return;
  const int token = warp * 16 + lane / 4, last_key = warp * 16 - 1;
  float by_k[tiles][4] = {}, by_q[tiles][4] = {};
#pragma unroll 1
  for (int r = lane % 4 * 2; r < Rows; r += 16) {
    const auto power = [&](int from, int to, int row) -> float2 {
      const float2 before = load_pair(&shared.sums[from][row]),
                   after = load_pair(&shared.sums[to][row]);
      return {exp2_fast(after.x - before.x), exp2_fast(after.y - before.y)};
    };
    std::uint32_t k[4], q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = token + i % 2 * 8, row = r + i / 2 * 8;
      const float2 factor = power(last_key, own, row);
      k[i] = scaled_pair(shared.k, own, row, factor);
      q[i] = scaled_pair(shared.q, own, row, factor);
    }
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      if (j >= 2 * warp) continue;
      const int key = j * 8 + lane / 4;
      const std::uint32_t low = scaled_pair(shared.k, key, r, power(key, last_key, r)),
                          high = scaled_pair(shared.k, key, r + 8, power(key, last_key, r + 8));
      mma_bf16(by_k[j], k, low, high);
      mma_bf16(by_q[j], q, low, high);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = token + half * 8;
    const float strength = shared.beta[own] * shared.k_factor[own], q_factor = shared.q_factor[own];
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      if (j >= 2 * warp) continue;
      const int key = j * 8 + lane % 4 * 2;
      const float first = shared.k_factor[key], second = shared.k_factor[key + 1];
      shared.system[own][key] = strength * first * by_k[j][2 * half];
      shared.system[own][key + 1] = strength * second * by_k[j][2 * half + 1];
      store_pair(scores + own * chunk_tokens + key, q_factor * first * by_q[j][2 * half],
                 q_factor * second * by_q[j][2 * half + 1]);
    }
  }
}

/// Stores what the walk of the chunks reads in the place of k and q, and its decays; zeros past the
/// chunk's tokens.
template <int Rows>
__device__ __forceinline__ void store_scaled(const DeltaChunkParams& p,
                                             const DeltaChannelShared<Rows>& shared,
                                             std::int64_t at) {
  const std::int64_t tile = at * chunk_tokens * Rows;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 8; i < chunk_tokens * Rows; i += chunk_threads * 8) {
    const int token = i / Rows, row = i % Rows;
    float k[8], q[8], written[8];
    unpack(load16(shared.k.at(token, row)), k);
    unpack(load16(shared.q.at(token, row)), q);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float sum = shared.sums[token][row + j];
      const float total = shared.sums[chunk_tokens - 1][row + j];
      k[j] *= shared.k_factor[token];
      written[j] = k[j] * exp2_fast(total - sum);
      k[j] *= exp2_fast(sum);
      q[j] *= shared.q_factor[token] * exp2_fast(sum);
    }
    store16(p.keys + tile + i, pack(k));
    store16(p.queries + tile + i, pack(q));
    store16(p.writes + tile + i, pack(written));
  }
  for (int row = static_cast<int>(threadIdx.x); row < Rows; row += chunk_threads) {
    p.totals[at * Rows + row] = exp2_fast(shared.sums[chunk_tokens - 1][row]);
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

/// A goes to memory.
template <typename Shared>
__device__ __forceinline__ void store_solved(const Shared& shared, bf16* solved) {
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
}

template <int Rows>
__device__ __forceinline__ void store_factors(const DeltaSolveShared<Rows>& shared,
                                              DeltaFactors& factors) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= chunk_tokens) return;
  const float total = shared.sums[chunk_tokens - 1], sum = shared.sums[thread];
  factors.of_key[thread] = exp_not_above_one(sum) * shared.k_factor[thread];
  factors.of_query[thread] = exp_not_above_one(sum) * shared.q_factor[thread];
  factors.of_write[thread] = exp_not_above_one(total - sum) * shared.k_factor[thread];
  if (thread < 4) factors.total[thread] = exp_not_above_one(total);
}

/// The chunk's q and k, on their way.
template <typename Shared>
__device__ __forceinline__ void copy_keys(const DeltaChunkParams& p, int head,
                                          const DeltaChunk& chunk, Shared& shared) {
  const bf16* const q = p.x + chunk.first * p.x_stride + p.q_of(head);
  copy_chunk(shared.q, q, p.x_step, chunk.tokens);
  copy_chunk(shared.k, q + p.k_distance(), p.x_step, chunk.tokens);
  cp_async_commit();
}

/// A of what is in shared.system, to memory.
template <typename Shared>
__device__ __forceinline__ void solve_system(Shared& shared, bf16* solved) {
  sync_block();
  solve_diagonal(shared.system, shared.solved);
  sync_block();
  solve_below(shared.system, shared.solved);
  sync_block();
  store_solved(shared, solved);
}

/// grid (heads, places): a block makes one chunk of one head. The system is solved in f32; A and B
/// are rounded to bf16.
template <int Rows>
__global__ void __launch_bounds__(chunk_threads, 3)
    delta_rule_solve_kernel(const DeltaChunkParams p) {
  auto& shared = dynamic_shared<DeltaSolveShared<Rows>>();
  const int head = static_cast<int>(blockIdx.x), place = static_cast<int>(blockIdx.y);
  start_next_and_wait();
  const DeltaChunk chunk = delta_chunk_at(p, place);
  if (chunk.tokens == 0) return;
  copy_keys(p, head, chunk, shared);
  if (threadIdx.x < warp_size) make_gates(p, head, chunk, shared);
  cp_async_wait<0>();
  sync_block();
  make_lengths(p.q_scale, shared);
  sync_block();
  const std::int64_t at = static_cast<std::int64_t>(place) * p.heads + head;
  make_products(shared, p.scores + at * delta_matrix_size);
  solve_system(shared, p.solved + at * delta_matrix_size);
  store_factors(shared, p.factors[at]);
}

/// The same with decays per channel; k and q times theirs are rounded to bf16, too.
template <int Rows>
__global__ void __launch_bounds__(chunk_threads, 2)
    delta_rule_solve_channels_kernel(const DeltaChunkParams p) {
  auto& shared = dynamic_shared<DeltaChannelShared<Rows>>();
  const int head = static_cast<int>(blockIdx.x), place = static_cast<int>(blockIdx.y);
  start_next_and_wait();
  const DeltaChunk chunk = delta_chunk_at(p, place);
  if (chunk.tokens == 0) return;
  copy_keys(p, head, chunk, shared);
  make_channel_gates(p, head, chunk, shared);
  cp_async_wait<0>();
  sync_block();
  make_lengths(p.q_scale, shared);
  sync_block();
  const std::int64_t at = static_cast<std::int64_t>(place) * p.heads + head;
  make_near_products(shared, p.scores + at * delta_matrix_size);
  make_far_products(shared, p.scores + at * delta_matrix_size);
  store_scaled(p, shared, at);
  solve_system(shared, p.solved + at * delta_matrix_size);
}

namespace {

template <int Rows>
void run(Stream& stream, const DeltaChunkParams& params, std::int64_t places, bool per_channel) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(params.heads), static_cast<unsigned>(places)),
          .threads = chunk_threads,
          .shared_bytes =
              per_channel ? sizeof(DeltaChannelShared<Rows>) : sizeof(DeltaSolveShared<Rows>)},
         per_channel ? delta_rule_solve_channels_kernel<Rows> : delta_rule_solve_kernel<Rows>,
         params);
}

}  // namespace

void delta_rule_solve(Stream& stream, const DeltaChunkParams& params, std::int64_t places,
                      bool per_channel) {
  if (params.rows == 64) return run<64>(stream, params, places, per_channel);
  run<128>(stream, params, places, per_channel);
}

}  // namespace hyb::kernels::cuda
