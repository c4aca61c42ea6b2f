#include <algorithm>
#include <cstdint>

#include "kernels/cuda/chunk_tile.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
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
  DeltaFactors* factors;  ///< [places,heads]
  int x_step, y_step;     ///< from token to token: 64 of them stay below 2^31
};

__device__ __forceinline__ int delta_chunk_place(int first_token, int span) {
  return first_token / chunk_tokens + span;
}

// The launch that makes A, B and the factors of every chunk, with the names of the formulas above.

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
  start_next_and_wait();
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

namespace {

/// Of a head's values, a block's: wide ones read keys and queries less often, narrow ones are twice
/// as many.
constexpr int wide_columns = 32, narrow_columns = 16;

/// So that a chunk's offsets are 32-bit numbers.
constexpr std::int64_t row_stride_max = 1 << 24;

template <int Columns>
using Values = ChunkTile<chunk_tokens, Columns>;
using Matrix = ChunkTile<chunk_tokens, chunk_tokens>;
/// 16 tokens of a warp, as mma_bf16 leaves them.
template <int Columns>
using Answer = float[Columns / 8][4];

/// The copies for a chunk are issued as soon as the one before does not need the place.
template <int Rows, int Columns>
struct alignas(16) Shared {
  SharedArray<ChunkTile<chunk_tokens, Rows>, 2> k;
  ChunkTile<chunk_tokens, Rows> q;
  Values<Columns> v;
  Matrix solved, scores;
  ChunkTile<Rows, Columns> state;
  Values<Columns> errors, changes, weighted;  ///< v - S^T k; d; d as the state takes it
  SharedArray<DeltaFactors, 2> factors;
};

/// What a block owns: some columns of a head, in one span.
struct Share {
  int head, column;
  int first, last;  ///< tokens
  int place;        ///< of the span's first chunk
  int read_slot, write_slot;
};

/// A block's part of the state in registers, as f32: a warp owns a quarter of its rows.
template <int Rows, int Columns>
struct State {
  static constexpr int warp_rows = Rows / chunk_warps, row_tiles = warp_rows / 16;
  static constexpr int column_tiles = Columns / 8;

  float values[row_tiles][column_tiles][4];

  /// body(row, column, first, second) for every pair of neighbours.
  template <typename Body>
  __device__ __forceinline__ void each_pair(Body&& body) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int row = static_cast<int>(threadIdx.x) / warp_size * warp_rows + lane / 4;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < column_tiles; ++n) {
        float(&tile)[4] = values[m][n];
        body(row + m * 16, n * 8 + lane % 4 * 2, tile[0], tile[1]);
        body(row + m * 16 + 8, n * 8 + lane % 4 * 2, tile[2], tile[3]);
      }
    }
  }

  /// From rows `stride` apart; null: zeros.
  template <typename S>
  __device__ __forceinline__ void load(const S* from, int stride) {
    each_pair([&](int row, int column, float& first, float& second) {
      const float2 pair = from == nullptr ? float2{0, 0} : load_pair(from + row * stride + column);
      first = pair.x;
      second = pair.y;
    });
  }
  template <typename S>
  __device__ __forceinline__ void store(S* to, int stride) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to + row * stride + column, first, second);
    });
  }
  __device__ __forceinline__ void spread(ChunkTile<Rows, Columns>& to) {
    each_pair([&](int row, int column, float first, float second) {
      store_pair(to.at(row, column), first, second);
    });
  }

  /// state <- total * state + k^T weighted
  __device__ __forceinline__ void move_on(const ChunkTile<chunk_tokens, Rows>& k,
                                          const Values<Columns>& weighted, float total,
                                          int tokens) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int row = static_cast<int>(threadIdx.x) / warp_size * warp_rows;
#pragma unroll
    for (auto& tiles : values) {
#pragma unroll
      for (auto& tile : tiles) {
#pragma unroll
        for (float& value : tile) value *= total;
      }
    }
#pragma unroll 1
    for (int t = 0; t < chunk_tokens && t < tokens; t += 16) {
      std::uint32_t right[column_tiles / 2][4];
#pragma unroll
      for (int n = 0; n < column_tiles / 2; ++n) {
        ldmatrix_x4_transposed(
            right[n], weighted.at(t + lane % 8 + lane / 8 % 2 * 8, n * 16 + lane / 16 * 8));
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        std::uint32_t a[4];
        ldmatrix_x4_transposed(a,
                               k.at(t + lane % 8 + lane / 16 * 8, row + m * 16 + lane / 8 % 2 * 8));
#pragma unroll
        for (int n = 0; n < column_tiles; ++n) {
          mma_bf16(values[m][n], a, right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }
};

/// answer += the warp's 16 rows of `left` times `right`, over the tokens up to the warp's last.
template <int Columns>
__device__ __forceinline__ void add_tokens(const Matrix& left, const Values<Columns>& right,
                                           Answer<Columns>& answer) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll 1
  for (int t = 0; t <= warp * 16; t += 16) {
    std::uint32_t a[4];
    ldmatrix_x4(a, left.at(warp * 16 + lane % 16, t + lane / 16 * 8));
#pragma unroll
    for (int n = 0; n < Columns / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_transposed(b, right.at(t + lane % 8 + lane / 8 % 2 * 8, n * 8 + lane / 16 * 8));
      mma_bf16(answer[n], a, b[0], b[1]);
      mma_bf16(answer[n + 1], a, b[2], b[3]);
    }
  }
}

/// What the warp's 16 keys and queries find in the state.
template <int Rows, int Columns>
__device__ __forceinline__ void find(const ChunkTile<chunk_tokens, Rows>& k,
                                     const ChunkTile<chunk_tokens, Rows>& q,
                                     const ChunkTile<Rows, Columns>& state, Answer<Columns>& by_k,
                                     Answer<Columns>& by_q) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll 2
  for (int r = 0; r < Rows; r += 16) {
    std::uint32_t keys[4], queries[4];
    ldmatrix_x4(keys, k.at(warp * 16 + lane % 16, r + lane / 16 * 8));
    ldmatrix_x4(queries, q.at(warp * 16 + lane % 16, r + lane / 16 * 8));
#pragma unroll
    for (int n = 0; n < Columns / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4_transposed(b, state.at(r + lane % 8 + lane / 8 % 2 * 8, n * 8 + lane / 16 * 8));
      mma_bf16(by_k[n], keys, b[0], b[1]);
      mma_bf16(by_k[n + 1], keys, b[2], b[3]);
      mma_bf16(by_q[n], queries, b[0], b[1]);
      mma_bf16(by_q[n + 1], queries, b[2], b[3]);
    }
  }
}

/// body(token of the chunk, column, first, second) for every pair of an answer.
template <int Tiles, typename Body>
__device__ __forceinline__ void each_pair(float (&answer)[Tiles][4], Body&& body) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int token = static_cast<int>(threadIdx.x) / warp_size * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
    body(token, n * 8 + lane % 4 * 2, answer[n][0], answer[n][1]);
    body(token + 8, n * 8 + lane % 4 * 2, answer[n][2], answer[n][3]);
  }
}

template <int Rows, int Columns>
struct Copies {
  const DeltaChunkParams& p;
  const Share& share;
  Shared<Rows, Columns>& shared;

  __device__ __forceinline__ const bf16* line(int chunk) const {
    return p.x + (share.first + chunk * chunk_tokens) * p.x_stride;
  }
  __device__ __forceinline__ int left(int chunk) const {
    return share.last - share.first - chunk * chunk_tokens;
  }
  __device__ __forceinline__ std::int64_t at(int chunk) const {
    return static_cast<std::int64_t>(share.place + chunk) * p.heads + share.head;
  }

  __device__ __forceinline__ void keys(int chunk) const {
    if (left(chunk) <= 0) return;
    const bf16* const k = line(chunk) + p.q_of(share.head) + p.k_distance();
    copy_chunk(shared.k[chunk % 2], k, p.x_step, left(chunk));
    const auto* const from = reinterpret_cast<const unsigned char*>(p.factors + at(chunk));
    auto* const to = reinterpret_cast<unsigned char*>(&shared.factors[chunk % 2]);
    const int byte = static_cast<int>(threadIdx.x) * 16;
    if (byte < static_cast<int>(sizeof(DeltaFactors))) cp_async16(to + byte, from + byte);
  }
  __device__ __forceinline__ void queries(int chunk) const {
    if (left(chunk) <= 0) return;
    copy_chunk(shared.q, line(chunk) + p.q_of(share.head), p.x_step, left(chunk));
    const bf16* const v = line(chunk) + p.v_of(share.head) + share.column;
    copy_chunk(shared.v, v, p.x_step, left(chunk));
  }
  __device__ __forceinline__ void solved(int chunk) const {
    if (left(chunk) <= 0) return;
    copy_chunk(shared.solved, p.solved + at(chunk) * delta_matrix_size, chunk_tokens, chunk_tokens);
  }
  __device__ __forceinline__ void scores(int chunk) const {
    copy_chunk(shared.scores, p.scores + at(chunk) * delta_matrix_size, chunk_tokens, chunk_tokens);
  }
};

/// The chunk's answers: a warp's 16 tokens. Two barriers; after each, copies into
/// what no warp reads any more are issued.
template <int Rows, int Columns>
__device__ __forceinline__ void answer_chunk(const Copies<Rows, Columns>& copies, int chunk) {
  const DeltaChunkParams& p = copies.p;
  Shared<Rows, Columns>& shared = copies.shared;
  const DeltaFactors& factors = shared.factors[chunk % 2];
  const int tokens = copies.left(chunk);
  const bool works = static_cast<int>(threadIdx.x) / warp_size * 16 < tokens;
  Answer<Columns> found = {}, answer = {};
  if (works) {
    find(shared.k[chunk % 2], shared.q, shared.state, found, answer);
    each_pair(found, [&](int token, int column, float first, float second) {
      const float factor = -factors.of_key[token];
      const float2 v = load_pair(shared.v.at(token, column));
      store_pair(shared.errors.at(token, column), fmaf(factor, first, v.x),
                 fmaf(factor, second, v.y));
    });
    each_pair(answer, [&](int token, int, float& first, float& second) {
      first *= factors.of_query[token];
      second *= factors.of_query[token];
    });
  }
  cp_async_wait<1>();
  sync_block();  // errors have arrived, and the solved matrix
  copies.queries(chunk + 1);
  cp_async_commit();
  if (works) {
    Answer<Columns> changes = {};
    add_tokens(shared.solved, shared.errors, changes);
    each_pair(changes, [&](int token, int column, float first, float second) {
      const float factor = factors.of_write[token];
      store_pair(shared.changes.at(token, column), first, second);
      store_pair(shared.weighted.at(token, column), factor * first, factor * second);
    });
  }
  cp_async_wait<1>();
  sync_block();  // changes have arrived, and the scores
  copies.solved(chunk + 1);
  cp_async_commit();
  if (!works) return;
  add_tokens(shared.scores, shared.changes, answer);
  bf16* const y = p.y + (copies.share.first + chunk * chunk_tokens) * p.y_stride +
                  static_cast<std::int64_t>(copies.share.head) * p.columns + copies.share.column;
  each_pair(answer, [&](int token, int column, float first, float second) {
    if (token < tokens) store_pair(y + token * p.y_step + column, first, second);
  });
}

/// A block's share of a span that has tokens, from slot to slot.
template <int Rows, int Columns>
__device__ __forceinline__ void run_span(const DeltaChunkParams& p, const Share& share,
                                         Shared<Rows, Columns>& shared) {
  const Copies<Rows, Columns> copies = {p, share, shared};
  copies.keys(0);
  copies.queries(0);
  cp_async_commit();
  copies.solved(0);
  cp_async_commit();
  const std::int64_t from = share.read_slot, to = share.write_slot;
  const std::int64_t at = p.state_of(share.head) + share.column;
  State<Rows, Columns> state;
  if (p.state_is_bf16) {
    const auto* const slots = static_cast<const bf16*>(p.state);
    state.load(from < 0 ? nullptr : slots + from * p.state_stride + at, p.columns);
  } else {
    const auto* const slots = static_cast<const float*>(p.state);
    state.load(from < 0 ? nullptr : slots + from * p.state_stride + at, p.columns);
  }
  for (int chunk = 0; copies.left(chunk) > 0; ++chunk) {
    state.spread(shared.state);
    cp_async_wait<1>();
    sync_block();  // keys, queries, values, factors and the spread state have arrived
    copies.scores(chunk);
    copies.keys(chunk + 1);
    cp_async_commit();
    answer_chunk(copies, chunk);
    state.move_on(shared.k[chunk % 2], shared.weighted, shared.factors[chunk % 2].total[0],
                  copies.left(chunk));
  }
  if (p.state_is_bf16) {
    state.store(static_cast<bf16*>(p.state) + to * p.state_stride + at, p.columns);
  } else {
    state.store(static_cast<float*>(p.state) + to * p.state_stride + at, p.columns);
  }
}

/// grid (heads * parts, spans): a block owns some columns of a head and walks the chunks of its
/// span, or of the chain that starts with it, with their state in registers, as f32 from chunk to
/// chunk. The products' operands (state, A, B, errors, d) are bf16: the state is within 2^-7 of the
/// plain loop's in terms of the largest |v| and number in the state before the span, y within 2^-9
/// of the same but for its rounding. How many columns a block has changes no bit.
template <int Rows, int Columns>
__global__ void __launch_bounds__(chunk_threads, 2)
    delta_rule_chunk_kernel(const DeltaChunkParams p) {
  auto& shared = dynamic_shared<Shared<Rows, Columns>>();
  const int parts = p.columns / Columns;
  Share share;
  share.head = static_cast<int>(blockIdx.x) / parts;
  share.column = static_cast<int>(blockIdx.x) % parts * Columns;
  start_next_and_wait();
  int index = static_cast<int>(blockIdx.y);
  SpanEntry span = span_at(p, index, p.spans);
  if (span.continues_previous || span.write_slot < 0) return;
  const int tokens = end_of_chain(p, index, span, p.spans) - span.first;
  if (tokens == 0 || tokens < p.tokens_min) return;
  for (;;) {
    share.first = span.first;
    share.last = span.last;
    share.place = delta_chunk_place(span.first, index);
    share.read_slot = span.read_slot;
    share.write_slot = span.write_slot;
    run_span(p, share, shared);
    if (!span.next_continues) return;
    span = span_at(p, ++index, p.spans);
    sync_block();  // the last chunk is no longer read
  }
}

std::int64_t places_of(const DeltaRule& op) {
  return delta_chunk_places(op.x.dim(0), op.read_slot.dim(0));
}

DeltaChunkParams params_of(const DeltaRule& op) {
  DeltaChunkParams params;
  static_cast<DeltaRuleParams<bf16, void>&>(params) = delta_rule_params<bf16, void>(op);
  const std::int64_t matrices = places_of(op) * params.heads;
  params.state_is_bf16 = op.state.dtype == DType::bf16;
  params.spans = static_cast<int>(op.read_slot.dim(0));
  params.tokens_min = params.spans > 1 ? delta_scan_tokens + 1 : 1;
  params.solved = op.workspace.as<bf16>();
  params.scores = params.solved + matrices * delta_matrix_size;
  params.factors = reinterpret_cast<DeltaFactors*>(params.scores + matrices * delta_matrix_size);
  params.x_step = static_cast<int>(params.x_stride);
  params.y_step = static_cast<int>(params.y_stride);
  return params;
}

template <int Rows, int Columns>
void walk_chunks(Stream& stream, const DeltaChunkParams& params) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.columns, Columns),
                         static_cast<unsigned>(params.spans)),
          .threads = chunk_threads,
          .shared_bytes = sizeof(Shared<Rows, Columns>)},
         delta_rule_chunk_kernel<Rows, Columns>, params);
}

template <int Rows>
void run(Stream& stream, const DeltaRule& op) {
  const DeltaChunkParams params = params_of(op);
  const auto heads = static_cast<unsigned>(params.heads);
  launch(stream,
         {.blocks = dim3(heads, static_cast<unsigned>(places_of(op))),
          .threads = chunk_threads,
          .shared_bytes = sizeof(DeltaSolveShared<Rows>)},
         delta_rule_solve_kernel<Rows>, params);
  // A long prompt's chunks follow each other, so what shortens it is more blocks side by side.
  const std::int64_t wide = std::int64_t{params.heads} * (params.columns / wide_columns);
  if (wide * params.spans <= stream.processors()) {
    walk_chunks<Rows, narrow_columns>(stream, params);
  } else {
    walk_chunks<Rows, wide_columns>(stream, params);
  }
}

}  // namespace

bool delta_rule_chunked_takes(const DeltaRule& op) {
  const std::int64_t rows = op.state.dim(2), columns = op.state.dim(3);
  const auto address = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data);
  };
  return op.x.dtype == DType::bf16 && (rows == 64 || rows == 128) && columns % wide_columns == 0 &&
         std::max(op.x.row_stride, op.y.row_stride) <= row_stride_max &&
         is_vector_aligned(op.x.as<bf16>(), op.x.row_stride) && address(op.y) % 4 == 0 &&
         op.y.row_stride % 2 == 0 && address(op.state) % 8 == 0 && op.state.row_stride % 2 == 0 &&
         !op.workspace.empty() && address(op.workspace) % 16 == 0 &&
         op.workspace.dim(0) >= delta_chunk_bytes(places_of(op), op.state.dim(1));
}

void delta_rule_chunked(Stream& stream, const DeltaRule& op) {
  if (op.x.dim(0) == 0) return;
  if (op.state.dim(2) == 64) {
    run<64>(stream, op);
  } else {
    run<128>(stream, op);
  }
  if (op.read_slot.dim(0) > 1) delta_rule_scan(stream, op, delta_scan_tokens);
}

}  // namespace hyb::kernels::cuda
