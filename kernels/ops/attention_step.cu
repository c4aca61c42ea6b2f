#include "kernels/cuda/attention_walk.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/rope_head.cuh"

namespace hyb::kernels::cuda {
namespace {

/// Holds the parameters of steps in which every span has one token.
template <typename S>
struct Params : AttentionParams<bf16, typename S::Kv> {
  static constexpr int pairs_max = S::head_dim / 2;

  RopeParams<pairs_max> rope;
};

template <typename S>
struct Shared : AttentionShared<S> {
  RopeTurns<Params<S>::pairs_max> turns;
  /// The token's own key and value, as pages have them.
  alignas(16) SharedArray<SharedArray<typename S::Kv, S::head_dim>, 2> own;
};

/// Queries that are normed and rotated here, and a last key and value that come from the token
/// itself: the blocks that walk them, one for every 16 query heads of a kv head, have a copy each,
/// and the first one writes them to the page for later steps.
template <typename S>
struct OwnRows {
  static constexpr int own_keys = 1;

  const Params<S>& p;
  int kv_head;
  Shared<S>& shared;

  __device__ const AttentionTile& tile() const { return shared.search.found[0]; }

  __device__ __forceinline__ void prepare() const {
    if (p.rope.reads_position()) fill_turns(p.rope, tile().position, shared.turns);
  }

  /// Returns the own key's place in tile `t` of the walk; it is not there from tile_keys on.
  __device__ __forceinline__ int own_place(int t) const {
    const KeyWalk& walk = shared.walk[0];
    return walk.end - 1 - walk.key_of(t);
  }

  /// Returns where the own key is written; null where another block does that.
  __device__ __forceinline__ typename S::Kv* place() const {
    if (tile().first_row != 0) return nullptr;
    const int page_tokens = p.kv.layout.page_tokens, position = tile().position;
    return p.kv.arena + p.kv.page_of(tile().page_begin, position) +
           p.kv.layout.key(kv_head, position % page_tokens);
  }

  __device__ __forceinline__ void fill_queries() const {
    const int thread = static_cast<int>(threadIdx.x), rows = tile().rows, lanes = p.rope.lanes;
    const bool has_own = own_place(shared.walk[0].tiles - 1) < tile_keys;
    const int heads = rows + (has_own ? 2 : 0);
    for (int first = 0; first < heads * lanes; first += S::threads) {  // by whole warps
      const int i = (first + thread) / lanes, lane = (first + thread) % lanes;
      const int query = kv_head * p.group + tile().first_row + i;
      const int own = p.rope.heads + kv_head + (i == rows ? 0 : p.rope.kv_heads);
      take_head({.p = p.rope,
                 .head = i < rows ? query : own,
                 .lane = lane,
                 .is_there = i < heads,
                 .is_whole = true},
                i);
    }
    constexpr int eights = S::head_dim / 8;
    for (int i = thread; i < S::rows * eights; i += S::threads) {
      const int row = i / eights, eight = i % eights;
      if (row < rows && eight * 8 < p.kv.layout.head_dim) continue;
      store16(shared.queries.at(row, eight), {});
    }
    sync_block();
  }

  /// To row `row` of the queries, or to the own key or value.
  __device__ __forceinline__ void take_head(const RopeHead<8, Params<S>::pairs_max>& head,
                                            int row) const {
    const bf16* const x = p.q + tile().token * p.q_stride +
                          static_cast<std::int64_t>(head.head) * p.kv.layout.head_dim;
    HeadHalves weights, values;
    head.load(x, values);
    head.load_norm(weights);  // after: registers are scarce
    if (p.rope.has_norms()) head.template apply_norm<bf16>(weights, values);
    head.for_each_piece([&](const HeadPiece& piece, int at) {
      head.template rotate<bf16>(piece, at, shared.turns, values);
      if (head.is_q()) {
        store_piece<8>(shared.queries.at(row, piece.first / 8), values.first, at);
        store_piece<8>(shared.queries.at(row, piece.second / 8), values.second, at);
        return;
      }
      auto& own = shared.own[head.is_v() ? 1 : 0];
      store_piece<8>(&own[piece.first], values.first, at);
      store_piece<8>(&own[piece.second], values.second, at);
      typename S::Kv* to = place();
      if (to == nullptr) return;
      to += head.is_v() ? p.kv.layout.value_offset() : 0;
      store_piece<8>(to + piece.first, values.first, at);
      store_piece<8>(to + piece.second, values.second, at);
    });
  }

  /// The thread whose copy of a piece of the own key gave zeros fills it in. The place of the
  /// key is computed again each time: there are no registers to hold it.
  __device__ __forceinline__ void arrive(int t, int item) const {
    constexpr int pieces = KeyRing<S>::pieces, size = S::head_dim / pieces;
    const int place = hidden(own_place(t));
    if (place >= tile_keys) return;
    const int piece = (static_cast<int>(threadIdx.x) - place * pieces) & (S::threads - 1);
    if (piece * size >= p.kv.layout.head_dim) return;
    store16(shared.ring.at(item, place, piece), load16(&shared.own[item % 2][piece * size]));
  }
};

template <int PairsMax>
__device__ __forceinline__ void prefetch_norms(const RopeParams<PairsMax>& p) {
  constexpr int line = 128 / sizeof(float);
  const int at = static_cast<int>(threadIdx.x) * line;
  if (at >= p.head_dim) return;
  if (p.q_norm != nullptr) prefetch(p.q_norm + at);
  if (p.k_norm != nullptr) prefetch(p.k_norm + at);
}

/// grid (tokens times the tiles of their query heads, kv heads, parts of the runs).
template <typename S>
__global__ void __launch_bounds__(S::threads, S::head_dim == 64 ? 4 : 1)
    attention_step_kernel(const Params<S> p) {
  static_assert((S::threads & (S::threads - 1)) == 0);
  auto& shared = dynamic_shared<Shared<S>>();
  const OwnRows<S> rows = {.p = p, .kv_head = static_cast<int>(blockIdx.y), .shared = shared};
  let_next_kernel_start();
  prefetch_norms(p.rope);
  wait_for_previous_kernel();
  attend_tile<S>(p, shared,
                 [&](auto run_ends) { walk_keys<S>(p, rows.kv_head, rows, shared, run_ends); });
}

template <typename S>
void run(Stream& stream, const PagedAttention& op, const RopeKvWrite& write) {
  static_assert(sizeof(Shared<S>) <= shared_bytes_everywhere);
  Params<S> params;
  static_cast<AttentionParams<bf16, typename S::Kv>&>(params) =
      attention_params<bf16, typename S::Kv>(op);
  params.rope = rope_params<Params<S>::pairs_max>(write, true);
  set_workspace(op, tile_dim(op.head_dim), params);
  const std::int64_t tiles = op.q.dim(0) * pieces(params.group, S::rows);
  launch_tiles<S, Shared<S>>(stream, attention_step_kernel<S>, params, tiles, runs_max(op), 1,
                             INT64_MAX);
}

template <typename K, bool IsCapped>
void run_in_tiles(Stream& stream, const PagedAttention& op, const RopeKvWrite& write) {
  switch (tile_dim(op.head_dim)) {
    case 64:
      return run<NarrowShape<64, K, IsCapped>>(stream, op, write);
    case 128:
      return run<NarrowShape<128, K, IsCapped>>(stream, op, write);
    default:
      run<NarrowShape<256, K, IsCapped>>(stream, op, write);
  }
}

template <typename K>
void run_pages(Stream& stream, const PagedAttention& op, const RopeKvWrite& write) {
  if (op.softcap == 0.0F) return run_in_tiles<K, false>(stream, op, write);
  run_in_tiles<K, true>(stream, op, write);
}

}  // namespace

void attention_step(Stream& stream, const RopeKvWrite& write, const PagedAttention& read) {
  if (read.q.dim(0) == 0) return;
  require(read.scale > 0.0F, "attention_step: scale is positive on the device");
  if (!write.queries_only && fits_attention_matrix(read) && read.head_dim % 16 == 0) {
    const bool is_coded = read.kv.arena.dtype == DType::f8_e4m3;
    if (is_coded && has_eights<bf16, e4m3>(write)) return run_pages<e4m3>(stream, read, write);
    if (!is_coded && has_eights<bf16, bf16>(write)) return run_pages<bf16>(stream, read, write);
  }
  rope_kv_write(stream, write);
  paged_attention(stream, read);
}

}  // namespace hyb::kernels::cuda
