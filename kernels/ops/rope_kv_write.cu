#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/kv_page.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/spans.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 128;
constexpr int pairs_max = static_cast<int>(rope_kv_write_head_dim_max) / 2;

template <typename T, typename K>
struct Params {
  T* qkv;
  const float *q_norm, *k_norm;  ///< null: none
  const std::int32_t *position_of_row, *span_begin, *position, *page_begin, *pages;
  K* arena;
  std::int64_t qkv_stride, page_stride;
  KvPage layout;
  int spans, heads, kv_heads, pairs;
  int lanes;  ///< of a head: a power of two, at most a warp
  float norm_eps, norm_offset;
  double turns_per_position[pairs_max];  ///< of each pair: its frequency / (2 pi)
};

struct Shared {
  SharedArray<float, pairs_max> sine, cosine;
};

/// The angle is position * frequency in f64; whole turns are taken off there, so that what is left
/// is exact enough for f32 at every position.
template <typename T, typename K>
__device__ __forceinline__ void fill_turns(const Params<T, K>& p, int position, Shared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < p.pairs; i += block_threads) {
    const double turns = position * p.turns_per_position[i];
    sine_cosine_of_turns(static_cast<float>(turns - rint(turns)), shared.sine[i], shared.cosine[i]);
  }
}

/// Where a token's keys go; null for a token that no span has.
template <typename T, typename K>
__device__ __forceinline__ K* place_of(const Params<T, K>& p, int token) {
  const int span = span_of_by_block(p.span_begin, p.spans, token);
  if (span >= p.spans) return nullptr;
  const int position = p.position[span] + token - p.span_begin[span];
  const std::int64_t page = p.pages[p.page_begin[span] + position / p.layout.page_tokens];
  return p.arena + page * p.page_stride + p.layout.key(0, position % p.layout.page_tokens);
}

/// Elements first .. and second .. of a head, Vector (8 or 1) of each: the halves of pairs, or two
/// neighbouring pieces of what is not rotated.
struct Piece {
  int first, second, pair;  ///< pair: of the first element; -1: not rotated
};

template <int Vector, typename T, typename K>
__device__ __forceinline__ Piece piece_of(const Params<T, K>& p, int i, bool rotates) {
  const int pairs = rotates ? p.pairs : 0, at = i * Vector;
  if (at < pairs) return {at, at + pairs, at};
  const int first = 2 * pairs + 2 * (at - pairs);
  return {first, first + Vector, -1};
}

/// What a thread has of a head: 8 / Vector pieces.
struct Halves {
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

/// rms_norm of the head that `lanes` threads share; the sum is in the same order for every token.
/// Every thread of the warp comes here, also where a head has no norm.
template <typename T, typename K>
__device__ __forceinline__ void norm_head(const Params<T, K>& p, bool has_norm,
                                          const Halves& weights, Halves& x) {
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += x.first[i] * x.first[i] + x.second[i] * x.second[i];
  for (int bits = p.lanes / 2; bits > 0; bits /= 2) squares += shuffle_xor(squares, bits);
  if (!has_norm) return;
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.layout.head_dim) + p.norm_eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float first = x.first[i] * scale * (p.norm_offset + weights.first[i]);
    const float second = x.second[i] * scale * (p.norm_offset + weights.second[i]);
    x.first[i] = to_float(rounded<T>(first));
    x.second[i] = to_float(rounded<T>(second));
  }
}

template <int Vector, typename T>
__device__ __forceinline__ void rotate(const Piece& piece, int at, const Shared& shared,
                                       Halves& x) {
#pragma unroll
  for (int i = at; i < at + Vector; ++i) {
    const float low = x.first[i], high = x.second[i];
    const float cosine = shared.cosine[piece.pair + i - at],
                sine = shared.sine[piece.pair + i - at];
    x.first[i] = to_float(rounded<T>(low * cosine - high * sine));
    x.second[i] = to_float(rounded<T>(high * cosine + low * sine));
  }
}

/// grid (T, threads of a token): p.lanes threads have one head of one token, each some pieces of
/// it. Sine and cosine are within 2^-21 of the contract's for positions below 2^27, a norm within
/// (head_dim + 8) * 2^-24 of the exact one, relatively; all else is exact.
template <int Vector, typename T, typename K>
__global__ void __launch_bounds__(block_threads) rope_kv_write_kernel(const Params<T, K> p) {
  Shared& shared = shared_object<Shared>();
  const int token = static_cast<int>(blockIdx.x);
  const int pieces_of_head = p.layout.head_dim / (2 * Vector);
  const int item = static_cast<int>(blockIdx.y * block_threads + threadIdx.x);
  const int head = item / p.lanes;
  const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
  const float* const norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;
  const auto for_each_piece = [&](auto&& body) {
    if (head >= p.heads + 2 * p.kv_heads) return;
#pragma unroll
    for (int j = 0; j < 8 / Vector; ++j) {
      const int i = item % p.lanes + j * p.lanes;
      const Piece piece = piece_of<Vector>(p, i, !is_v);
      const bool changes = !is_q || piece.pair >= 0 || norm != nullptr;
      if (i < pieces_of_head && changes) body(piece, j * Vector);
    }
  };
  let_next_kernel_start();
  Halves weights;
  if (norm != nullptr) {
    for_each_piece([&](const Piece& piece, int at) {
      load_piece<Vector>(norm + piece.first, weights.first, at);
      load_piece<Vector>(norm + piece.second, weights.second, at);
    });
  }
  wait_for_previous_kernel();

  T* const x = p.qkv + token * p.qkv_stride + static_cast<std::int64_t>(head) * p.layout.head_dim;
  Halves own;
  for_each_piece([&](const Piece& piece, int at) {
    load_piece<Vector>(x + piece.first, own.first, at);
    load_piece<Vector>(x + piece.second, own.second, at);
  });
  if (p.pairs > 0) fill_turns(p, p.position_of_row[token], shared);
  K* const place = place_of(p, token);  // its barriers end the writing of shared memory, too
  if (place == nullptr) return;
  if (p.q_norm != nullptr || p.k_norm != nullptr) norm_head(p, norm != nullptr, weights, own);

  const int kv_head = head - p.heads - (is_v ? p.kv_heads : 0);
  for_each_piece([&](const Piece& piece, int at) {
    if (piece.pair >= 0) rotate<Vector, T>(piece, at, shared, own);
    if (is_q) {
      store_piece<Vector>(x + piece.first, own.first, at);
      store_piece<Vector>(x + piece.second, own.second, at);
      return;
    }
    K* const to = place + p.layout.key(kv_head, 0) + (is_v ? p.layout.value_offset() : 0);
    store_piece<Vector>(to + piece.first, own.first, at);
    store_piece<Vector>(to + piece.second, own.second, at);
  });
}

template <typename T, typename K>
void run(Stream& stream, const RopeKvWrite& op) {
  const auto head_dim = static_cast<int>(op.head_dim);
  Params<T, K> params = {.qkv = op.qkv.as<T>(),
                         .q_norm = op.q_norm.as<float>(),
                         .k_norm = op.k_norm.as<float>(),
                         .position_of_row = op.position_of_row.as<std::int32_t>(),
                         .span_begin = op.span_begin.as<std::int32_t>(),
                         .position = op.position.as<std::int32_t>(),
                         .page_begin = op.page_begin.as<std::int32_t>(),
                         .pages = op.pages.as<std::int32_t>(),
                         .arena = op.pages_of_layer.as<K>(),
                         .qkv_stride = op.qkv.row_stride,
                         .page_stride = op.pages_of_layer.row_stride,
                         .layout = {head_dim, static_cast<int>(op.page_tokens)},
                         .spans = static_cast<int>(op.span_begin.dim(0) - 1),
                         .heads = static_cast<int>(op.heads),
                         .kv_heads = static_cast<int>(op.kv_heads),
                         .pairs = static_cast<int>(op.rotary_dim / 2),
                         .lanes = 1,
                         .norm_eps = op.norm_eps,
                         .norm_offset = op.norm_one_plus ? 1.0F : 0.0F,
                         .turns_per_position = {}};
  constexpr double turn = 6.283185307179586477;
  for (int i = 0; i < params.pairs; ++i) {
    const double exponent = -2.0 * i / static_cast<double>(op.rotary_dim);
    params.turns_per_position[i] = std::pow(op.theta, exponent) / turn;
  }
  const bool is_aligned = head_dim % 16 == 0 && params.pairs % 8 == 0 &&
                          is_vector_aligned(params.qkv, params.qkv_stride) &&
                          is_vector_aligned(params.arena, params.page_stride) &&
                          is_vector_aligned(params.q_norm, 0) &&
                          is_vector_aligned(params.k_norm, 0);
  const auto pieces_of_head = static_cast<unsigned>(head_dim / (is_aligned ? 16 : 2));
  params.lanes = std::min(warp_size, static_cast<int>(std::bit_ceil(pieces_of_head)));
  const std::int64_t items = (op.heads + 2 * op.kv_heads) * params.lanes;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(op.qkv.dim(0)), pieces(items, block_threads)),
          .threads = block_threads,
          .starts_early = true},
         is_aligned ? rope_kv_write_kernel<8, T, K> : rope_kv_write_kernel<1, T, K>, params);
}

}  // namespace

void rope_kv_write(Stream& stream, const RopeKvWrite& op) {
  require(op.head_dim % 2 == 0 && op.head_dim <= rope_kv_write_head_dim_max,
          "rope_kv_write: head_dim is even and at most 512");
  if (op.qkv.dim(0) == 0) return;
  visit_float(op.qkv.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.pages_of_layer.dtype, [&]<typename K>(Tag<K>) { run<T, K>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
