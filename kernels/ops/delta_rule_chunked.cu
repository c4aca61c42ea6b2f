#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/ops/delta_rule_chunks.cuh"

namespace hyb::kernels::cuda {
namespace {

/// A block has this many columns of a head's values: wide ones read keys and queries less often,
/// narrow ones are twice as many.
constexpr int wide_columns = 32, narrow_columns = 16;

/// So that a chunk's offsets are 32-bit numbers.
constexpr std::int64_t row_stride_max = 1 << 24;

template <int Columns>
using Values = ChunkTile<chunk_tokens, Columns>;
using Matrix = ChunkTile<chunk_tokens, chunk_tokens>;
/// 16 tokens of a warp, as mma_bf16 leaves them.
template <int Columns>
using Answer = float[Columns / 8][4];

template <int Rows>
struct alignas(16) ChannelTotals {
  SharedArray<float, Rows> total;
};

/// The copies for a chunk are issued as soon as the one before does not need the place.
template <int Rows, int Columns, bool PerChannel>
struct alignas(16) Shared {
  static constexpr int rows = Rows, columns = Columns;
  static constexpr bool per_channel = PerChannel;

  SharedArray<ChunkTile<chunk_tokens, Rows>, 2> k;
  ChunkTile<chunk_tokens, Rows> q;
  Values<Columns> v;
  Matrix solved, scores;
  ChunkTile<Rows, Columns> state;
  Values<Columns> errors, changes, weighted;  ///< v - S^T k; d; d as the state takes it
  SharedArray<std::conditional_t<PerChannel, ChannelTotals<Rows>, DeltaFactors>, 2> factors;
};

/// Says what a block owns: some columns of a head, in one span.
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

  /// state <- total_of(row) * state + k^T weighted
  template <typename TotalOf>
  __device__ __forceinline__ void move_on(const ChunkTile<chunk_tokens, Rows>& k,
                                          const Values<Columns>& weighted, TotalOf&& total_of,
                                          int tokens) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int row = static_cast<int>(threadIdx.x) / warp_size * warp_rows;
    each_pair([&](int of_pair, int, float& first, float& second) {
      const float total = total_of(of_pair);
      first *= total;
      second *= total;
    });
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

/// Finds what the warp's 16 keys and queries find in the state.
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

template <typename Shared>
struct Copies {
  const DeltaChunkParams& p;
  const Share& share;
  Shared& shared;

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
    auto& factors = shared.factors[chunk % 2];
    if constexpr (Shared::per_channel) {
      scaled(shared.k[chunk % 2], p.keys, chunk);
      copy_factors(&factors, p.totals + at(chunk) * Shared::rows, sizeof(factors));
    } else {
      const bf16* const k = line(chunk) + p.q_of(share.head) + p.k_distance();
      copy_chunk(shared.k[chunk % 2], k, p.x_step, left(chunk));
      copy_factors(&factors, p.factors + at(chunk), sizeof(factors));
    }
  }
  __device__ __forceinline__ void queries(int chunk) const {
    if (left(chunk) <= 0) return;
    if constexpr (Shared::per_channel) {
      scaled(shared.q, p.queries, chunk);
    } else {
      copy_chunk(shared.q, line(chunk) + p.q_of(share.head), p.x_step, left(chunk));
    }
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
  /// Puts the keys as the state takes them, with decays per channel, in the place of the chunk's
  /// keys.
  __device__ __forceinline__ void writes(int chunk) const {
    if constexpr (Shared::per_channel) scaled(shared.k[chunk % 2], p.writes, chunk);
  }

 private:
  __device__ __forceinline__ void scaled(ChunkTile<chunk_tokens, Shared::rows>& to,
                                         const bf16* from, int chunk) const {
    constexpr int rows = Shared::rows;
    copy_chunk(to, from + at(chunk) * (chunk_tokens * rows), rows, chunk_tokens);
  }
  __device__ __forceinline__ static void copy_factors(void* to, const void* from,
                                                      std::size_t size) {
    const std::size_t byte = threadIdx.x * std::size_t{16};
    if (byte >= size) return;
    cp_async16(static_cast<unsigned char*>(to) + byte,
               static_cast<const unsigned char*>(from) + byte);
  }
};

/// The chunk's answers: a warp's 16 tokens. Two barriers; after each, copies into
/// what no warp reads any more are issued.
template <typename Shared>
__device__ __forceinline__ void answer_chunk(const Copies<Shared>& copies, int chunk) {
  constexpr int Columns = Shared::columns;
  constexpr bool per_channel = Shared::per_channel;  // all factors are in keys and queries
  const DeltaChunkParams& p = copies.p;
  Shared& shared = copies.shared;
  const auto& factors = shared.factors[chunk % 2];
  const int tokens = copies.left(chunk);
  const bool works = static_cast<int>(threadIdx.x) / warp_size * 16 < tokens;
  Answer<Columns> found = {}, answer = {};
  if (works) {
    find(shared.k[chunk % 2], shared.q, shared.state, found, answer);
    each_pair(found, [&](int token, int column, float first, float second) {
      float factor = -1.0F;
      if constexpr (!per_channel) factor = -factors.of_key[token];
      const float2 v = load_pair(shared.v.at(token, column));
      store_pair(shared.errors.at(token, column), fmaf(factor, first, v.x),
                 fmaf(factor, second, v.y));
    });
    if constexpr (!per_channel) {
      each_pair(answer, [&](int token, int, float& first, float& second) {
        first *= factors.of_query[token];
        second *= factors.of_query[token];
      });
    }
  }
  cp_async_wait<1>();
  sync_block();  // errors have arrived, and the solved matrix
  copies.queries(chunk + 1);
  copies.writes(chunk);
  cp_async_commit();
  if (works) {
    Answer<Columns> changes = {};
    add_tokens(shared.solved, shared.errors, changes);
    each_pair(changes, [&](int token, int column, float first, float second) {
      store_pair(shared.changes.at(token, column), first, second);
      if constexpr (!per_channel) {
        const float factor = factors.of_write[token];
        store_pair(shared.weighted.at(token, column), factor * first, factor * second);
      }
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
template <typename Shared>
__device__ __forceinline__ void run_span(const DeltaChunkParams& p, const Share& share,
                                         Shared& shared) {
  const Copies<Shared> copies = {p, share, shared};
  copies.keys(0);
  copies.queries(0);
  cp_async_commit();
  copies.solved(0);
  cp_async_commit();
  const std::int64_t from = share.read_slot, to = share.write_slot;
  const std::int64_t at = p.state_of(share.head) + share.column;
  State<Shared::rows, Shared::columns> state;
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
    const auto& total = shared.factors[chunk % 2].total;
    if constexpr (Shared::per_channel) {
      cp_async_wait<1>();
      sync_block();  // the keys that the state takes have arrived
      state.move_on(
          shared.k[chunk % 2], shared.changes, [&](int row) { return total[row]; },
          copies.left(chunk));
    } else {
      state.move_on(
          shared.k[chunk % 2], shared.weighted, [&](int) { return total[0]; }, copies.left(chunk));
    }
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
/// of the same but for its rounding. With decays per channel k and q times theirs are bf16 as well:
/// twice these bounds. How many columns a block has changes no bit.
template <int Rows, int Columns, bool PerChannel>
__global__ void __launch_bounds__(chunk_threads, 2)
    delta_rule_chunk_kernel(const DeltaChunkParams p) {
  auto& shared = dynamic_shared<Shared<Rows, Columns, PerChannel>>();
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
  bf16* const made = params.scores + matrices * delta_matrix_size;
  const std::int64_t tiles = matrices * chunk_tokens * params.rows;
  params.factors = reinterpret_cast<DeltaFactors*>(made);
  params.keys = made;
  params.queries = params.keys + tiles;
  params.writes = params.queries + tiles;
  params.totals = reinterpret_cast<float*>(params.writes + tiles);
  params.x_step = static_cast<int>(params.x_stride);
  params.y_step = static_cast<int>(params.y_stride);
  return params;
}

template <int Rows, int Columns, bool PerChannel>
void walk_chunks(Stream& stream, const DeltaChunkParams& params) {
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(params.heads) * pieces(params.columns, Columns),
                         static_cast<unsigned>(params.spans)),
          .threads = chunk_threads,
          .shared_bytes = sizeof(Shared<Rows, Columns, PerChannel>)},
         delta_rule_chunk_kernel<Rows, Columns, PerChannel>, params);
}

template <int Rows, bool PerChannel>
void run(Stream& stream, const DeltaRule& op) {
  const DeltaChunkParams params = params_of(op);
  delta_rule_solve(stream, params, places_of(op), PerChannel);
  // A long prompt's chunks follow each other, so what shortens it is more blocks side by side.
  const std::int64_t wide = std::int64_t{params.heads} * (params.columns / wide_columns);
  if (wide * params.spans <= stream.processors()) {
    walk_chunks<Rows, narrow_columns, PerChannel>(stream, params);
  } else {
    walk_chunks<Rows, wide_columns, PerChannel>(stream, params);
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
         op.workspace.dim(0) >=
             delta_chunk_bytes(places_of(op), op.state.dim(1), op.shape.per_channel ? rows : 0);
}

void delta_rule_chunked(Stream& stream, const DeltaRule& op) {
  if (op.x.dim(0) == 0) return;
  if (op.state.dim(2) == 64) {
    op.shape.per_channel ? run<64, true>(stream, op) : run<64, false>(stream, op);
  } else {
    op.shape.per_channel ? run<128, true>(stream, op) : run<128, false>(stream, op);
  }
  if (op.read_slot.dim(0) > 1) delta_rule_scan(stream, op, delta_scan_tokens);
}

}  // namespace hyb::kernels::cuda
