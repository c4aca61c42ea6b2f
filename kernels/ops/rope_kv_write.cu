#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/ops/rope_head.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 128;
constexpr int pairs_max = static_cast<int>(rope_kv_write_head_dim_max) / 2;

template <typename T, typename K>
struct Params {
  PageParams<K> kv;  ///< without an arena nothing is written
  T* qkv;
  const std::int32_t* position_of_row;
  std::int64_t qkv_stride;
  RopeParams<pairs_max> rope;
};

/// Returns where a token's keys go; null for a token that no span has.
template <typename T, typename K>
__device__ __forceinline__ K* place_of(const Params<T, K>& p, int token) {
  const int span = span_of_by_block(p.kv.span_begin, p.kv.spans, token);
  if (span >= p.kv.spans) return nullptr;
  const int position = p.kv.position[span] + token - p.kv.span_begin[span];
  return p.kv.arena + p.kv.page_of(p.kv.page_begin[span], position) +
         p.kv.layout.key(0, position % p.kv.layout.page_tokens);
}

/// grid (T, threads of a token): rope.lanes threads have one head of one token.
template <int Vector, typename T, typename K>
__global__ void __launch_bounds__(block_threads) rope_kv_write_kernel(const Params<T, K> p) {
  auto& turns = shared_object<RopeTurns<pairs_max>>();
  const int token = static_cast<int>(blockIdx.x);
  const int item = static_cast<int>(blockIdx.y * block_threads + threadIdx.x);
  const int index = item / p.rope.lanes;
  const RopeHead<Vector, pairs_max> head = {.p = p.rope,
                                            .head = index,
                                            .lane = item % p.rope.lanes,
                                            .is_there = index < p.rope.heads + 2 * p.rope.kv_heads,
                                            .is_whole = false};
  let_next_kernel_start();
  HeadHalves weights, own;
  head.load_norm(weights);
  wait_for_previous_kernel();

  T* const x =
      p.qkv + token * p.qkv_stride + static_cast<std::int64_t>(index) * p.kv.layout.head_dim;
  head.load(x, own);
  if (p.rope.reads_position()) fill_turns(p.rope, p.position_of_row[token], turns);
  K* place = nullptr;
  if (p.kv.arena == nullptr) {
    sync_block();
  } else {
    place = place_of(p, token);  // its barriers end the writing of shared memory, too
    if (place == nullptr) return;
  }
  if (p.rope.has_norms()) head.template apply_norm<T>(weights, own);

  const int kv_head = index - p.rope.heads - (head.is_v() ? p.rope.kv_heads : 0);
  head.for_each_piece([&](const HeadPiece& piece, int at) {
    head.template rotate<T>(piece, at, turns, own);
    if (head.is_q()) {
      store_piece<Vector>(x + piece.first, own.first, at);
      store_piece<Vector>(x + piece.second, own.second, at);
      return;
    }
    K* const to =
        place + p.kv.layout.key(kv_head, 0) + (head.is_v() ? p.kv.layout.value_offset() : 0);
    store_piece<Vector>(to + piece.first, own.first, at);
    store_piece<Vector>(to + piece.second, own.second, at);
  });
}

/// Heads are `stride` apart.
template <typename T, typename K>
void run(Stream& stream, const RopeKvWrite& op, std::int64_t stride) {
  const bool in_eights = has_eights<T, K>(op) && stride % 8 == 0;
  const Params<T, K> params = {.kv = page_params<K>(op.kv, stride),
                               .qkv = op.qkv.as<T>(),
                               .position_of_row = op.position_of_row.as<std::int32_t>(),
                               .qkv_stride = op.qkv.row_stride,
                               .rope = rope_params<pairs_max>(op, in_eights)};
  const std::int64_t items = (op.heads + 2 * op.own_kv_heads()) * params.rope.lanes;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(op.qkv.dim(0)), pieces(items, block_threads)),
          .threads = block_threads},
         in_eights ? rope_kv_write_kernel<8, T, K> : rope_kv_write_kernel<1, T, K>, params);
}

}  // namespace

void rope_kv_write(Stream& stream, const RopeKvWrite& op) {
  if (op.qkv.dim(0) == 0) return;
  visit_float(op.qkv.dtype, [&]<typename T>(Tag<T>) {
    visit_kv(op.kv.arena.dtype, [&]<typename K>(Tag<K>) { run<T, K>(stream, op, op.head_dim); });
  });
}

void rope(Stream& stream, const Rope& op) {
  require(op.scaled_heads == 0, "rope: no scale on the device");
  if (op.x.dim(0) == 0) return;
  const RopeKvWrite turned = {.qkv = op.x,
                              .position_of_row = op.position_of_row,
                              .kv = {},
                              .heads = op.heads,
                              .head_dim = 2 * std::ssize(op.frequencies),
                              .frequencies = op.frequencies};
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) { run<T, T>(stream, turned, op.head_dim); });
}

}  // namespace hyb::kernels::cuda
