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
  const std::int32_t *position_of_row, *span_begin, *position, *page_begin, *pages;
  K* arena;
  std::int64_t qkv_stride, page_stride;
  KvPage layout;
  int spans, heads, kv_heads, pairs;
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

template <int Vector, typename T>
__device__ __forceinline__ void load_piece(const T* from, float (&values)[8]) {
  load_eight<Vector == 8>(from, Vector, values);
}
template <int Vector, typename T>
__device__ __forceinline__ void store_piece(T* to, const float (&values)[8]) {
  store_eight<Vector == 8>(to, Vector, values);
}

/// grid (T, pieces of a token): a thread owns two vectors of one head of one token. Sine and cosine
/// are within 2^-21 of the contract's for positions below 2^27; all else is exact.
template <int Vector, typename T, typename K>
__global__ void __launch_bounds__(block_threads) rope_kv_write_kernel(const Params<T, K> p) {
  Shared& shared = shared_object<Shared>();
  const int token = static_cast<int>(blockIdx.x);
  const int pieces_of_head = p.layout.head_dim / (2 * Vector);
  const int item = static_cast<int>(blockIdx.y * block_threads + threadIdx.x);
  const int head = item / pieces_of_head;
  const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
  let_next_kernel_start();
  wait_for_previous_kernel();

  const Piece piece = piece_of<Vector>(p, item % pieces_of_head, !is_v);
  const bool has_work = head < p.heads + 2 * p.kv_heads && !(is_q && piece.pair < 0);
  T* const x = p.qkv + token * p.qkv_stride + static_cast<std::int64_t>(head) * p.layout.head_dim;
  float first[8], second[8];
  if (has_work) {
    load_piece<Vector>(x + piece.first, first);
    load_piece<Vector>(x + piece.second, second);
  }
  if (p.pairs > 0) fill_turns(p, p.position_of_row[token], shared);
  K* const place = place_of(p, token);  // its barriers end the writing of shared memory, too
  if (place == nullptr || !has_work) return;

  if (piece.pair >= 0) {
    for (int i = 0; i < Vector; ++i) {
      const float low = first[i], high = second[i];
      const float cosine = shared.cosine[piece.pair + i], sine = shared.sine[piece.pair + i];
      first[i] = to_float(rounded<T>(low * cosine - high * sine));
      second[i] = to_float(rounded<T>(high * cosine + low * sine));
    }
  }
  if (is_q) {
    store_piece<Vector>(x + piece.first, first);
    store_piece<Vector>(x + piece.second, second);
    return;
  }
  const int kv_head = head - p.heads - (is_v ? p.kv_heads : 0);
  K* const to = place + p.layout.key(kv_head, 0) + (is_v ? p.layout.value_offset() : 0);
  store_piece<Vector>(to + piece.first, first);
  store_piece<Vector>(to + piece.second, second);
}

template <typename T, typename K>
void run(Stream& stream, const RopeKvWrite& op) {
  const auto head_dim = static_cast<int>(op.head_dim);
  Params<T, K> params = {.qkv = op.qkv.as<T>(),
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
                         .turns_per_position = {}};
  constexpr double turn = 6.283185307179586477;
  for (int i = 0; i < params.pairs; ++i) {
    const double exponent = -2.0 * i / static_cast<double>(op.rotary_dim);
    params.turns_per_position[i] = std::pow(op.theta, exponent) / turn;
  }
  const bool is_aligned = head_dim % 16 == 0 && params.pairs % 8 == 0 &&
                          is_vector_aligned(params.qkv, params.qkv_stride) &&
                          is_vector_aligned(params.arena, params.page_stride);
  const std::int64_t items = (op.heads + 2 * op.kv_heads) * op.head_dim / (is_aligned ? 16 : 2);
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
  if (!op.q_norm.empty() || !op.k_norm.empty()) {
    throw Error(ErrorKind::model, "rope_kv_write: norms are not supported on a card yet");
  }
  if (op.qkv.dim(0) == 0) return;
  visit_float(op.qkv.dtype, [&]<typename T>(Tag<T>) {
    visit_float(op.pages_of_layer.dtype, [&]<typename K>(Tag<K>) { run<T, K>(stream, op); });
  });
}

}  // namespace hyb::kernels::cuda
