#include <bit>

#include "kernels/cuda/launch.h"
#include "kernels/linear/input_rows.h"
#include "kernels/ops/moe_few.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int vector = vector_size<bf16>;
constexpr int front_blocks = 2;  ///< for each processor: more would only norm x again

constexpr int words_max = static_cast<int>(few_experts_max) / 32;

struct alignas(16) FrontShared {
  PairTotals totals;
  SharedArray<unsigned, words_max> visited;        ///< a bit for every expert that is
  SharedArray<int, words_max + 1> visited_before;  ///< how many of them in lower words
  SharedArray<int, 1> is_last;
};

/// The rows as the router saw them, for the next kernel.
__device__ __forceinline__ void write_normed(const FewMoe& p, const bf16* rows) {
  for (int i = static_cast<int>(threadIdx.x) * vector; i < p.tokens * p.hidden;
       i += few_threads * vector) {
    store16(p.normed + i, load16(rows + i));
  }
}

/// Experts that some token visits, ascending, and who visits them.
__device__ __forceinline__ void list_visits(const FewMoe& p, FrontShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int words = (p.route.experts + 31) / 32, visits = p.tokens * p.route.active;
  if (thread < words) shared.visited[thread] = 0;
  sync_block();
  for (int i = thread; i < visits; i += few_threads) {
    atomic_or(&shared.visited[p.chosen[i] / 32], 1U << p.chosen[i] % 32);
  }
  sync_block();
  if (thread == 0) {
    int before = 0;
    for (int word = 0; word < words; ++word) {
      shared.visited_before[word] = before;
      before += std::popcount(shared.visited[word]);
    }
    shared.visited_before[words] = before;
    p.visited[0] = before;
  }
  sync_block();
  for (int i = thread; i < shared.visited_before[words] * skinny_rows_max; i += few_threads) {
    p.visitors[i] = -1;
  }
  sync_block();
  for (int i = thread; i < visits; i += few_threads) {
    const int expert = p.chosen[i], word = expert / 32;
    const unsigned below = shared.visited[word] & ((1U << expert % 32) - 1);
    const int place = shared.visited_before[word] + std::popcount(below);
    p.visited[1 + place] = expert;
    p.visitors[place * skinny_rows_max + i / p.route.active] = i;
  }
}

/// By the block that finds all logits written: it chooses for all tokens.
__device__ __forceinline__ void choose(const FewMoe& p, FrontShared& shared, unsigned* keys) {
  for (int t = warp_id(); t < p.tokens; t += few_warps) {
    route_warp(p.route, p.logits + static_cast<std::int64_t>(t) * p.route.experts,
               keys + warp_id() * p.route.experts, p.chosen + t * p.route.active,
               p.weights + t * p.route.active);
  }
  sync_block();
  list_visits(p, shared);
}

/// Writes what the block has of a tile; true to all threads where these were the last logits.
__device__ __forceinline__ bool write_front(const FewMoe& p, FrontShared& shared, int tile,
                                            int router_tiles) {
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / pair_columns, column = thread % pair_columns;
  if (tile >= router_tiles) {
    const int columns = p.is_gated ? skinny_group : pair_columns;
    const int at = (tile - router_tiles) * columns + column;
    if (token < p.tokens && column < columns && at < p.shared_intermediate) {
      p.shared[token * p.shared_intermediate + at] =
          activated(shared.totals, token, column, p.is_gated);
    }
    return false;
  }
  const int expert = tile * pair_columns + column;
  if (token < p.tokens && expert < p.route.experts) {
    p.logits[token * p.route.experts + expert] = shared.totals.sum(token, column);
  }
  sync_block();
  if (thread == 0) {
    fence();
    const bool is_last = atomic_add(p.ticket, 1U) + 1 == static_cast<unsigned>(router_tiles);
    fence();
    if (is_last) *p.ticket = 0;
    shared.is_last[0] = is_last ? 1 : 0;
  }
  sync_block();
  return shared.is_last[0] != 0;
}

/// A block owns tiles of 16 weight rows, the router's first; its warps take turns in chunks of k.
/// While the block with the last logits chooses the experts, the others are at the shared one.
/// Sums are within (K+4) * 2^-23 * sum_k |x*W|, the norm within (H+8) * 2^-24.
__global__ void __launch_bounds__(few_threads, 2) few_front_kernel(const FewMoe p) {
  auto& shared = dynamic_shared<FrontShared>();
  auto* const rows = reinterpret_cast<bf16*>(&shared + 1);
  auto* const keys = reinterpret_cast<unsigned*>(rows + p.tokens * p.hidden);
  const int router_tiles = tiles_of(p.route.experts, false);
  const int tiles =
      router_tiles + (p.shared == nullptr ? 0 : tiles_of(p.shared_intermediate, p.is_gated));
  const auto rows_of = [&](int tile) {
    if (tile < router_tiles) return TileRows(p.router, p.hidden, p.route.experts, tile, false);
    return TileRows(p.shared_gate_up, p.hidden, p.shared_intermediate, tile - router_tiles,
                    p.is_gated);
  };
  const SkinnyRange range{.inner = p.hidden, .first = warp_id(), .step = few_warps};
  const bool is_high = p.tokens > skinny_rows_max / 2;
  const auto x = [&](bool high, int k) {
    const int row = lane_id() / 4 + (high ? 8 : 0);
    return row < p.tokens && k < p.hidden ? load16(rows + row * p.hidden + k) : uint4{};
  };

  PairPieces pieces;
  int tile = static_cast<int>(blockIdx.x);
  load_pieces(pieces, rows_of(tile).rows, range);
  prefetch_norm(p.norm, p.hidden);
  let_next_kernel_start();
  wait_for_previous_kernel();
  stage_rows<few_warps>(rows, p.x, p.x_stride, p.tokens, p.hidden, p.norm);
  sync_block();
  if (blockIdx.x == 0) write_normed(p, rows);
  while (tile < tiles) {
    const TileRows weight = rows_of(tile);
    float sums[2][4] = {};
    multiply_rows(pieces, weight.rows, range, is_high, x, sums);
    shared.totals.put(is_high, sums);
    sync_block();
    if (write_front(p, shared, tile, router_tiles)) choose(p, shared, keys);
    tile += static_cast<int>(gridDim.x);
    if (tile < tiles) load_pieces(pieces, rows_of(tile).rows, range);
    sync_block();  // the totals have been read
  }
}

}  // namespace

std::size_t few_front_bytes(const MoeShape& shape) {
  const auto tokens = static_cast<std::size_t>(shape.tokens);
  return sizeof(FrontShared) + tokens * static_cast<std::size_t>(shape.hidden) * sizeof(bf16) +
         std::min<std::size_t>(tokens, few_warps) * static_cast<std::size_t>(shape.experts) *
             sizeof(unsigned);
}

void run_few_front(Stream& stream, const FewMoe& few) {
  const int front_tiles =
      tiles_of(few.route.experts, false) +
      (few.shared == nullptr ? 0 : tiles_of(few.shared_intermediate, few.is_gated));
  launch(
      stream,
      {.blocks = static_cast<unsigned>(std::min(front_tiles, front_blocks * stream.processors())),
       .threads = few_threads,
       .shared_bytes = few_front_bytes({.tokens = few.tokens,
                                        .active = few.route.active,
                                        .experts = few.route.experts,
                                        .hidden = few.hidden,
                                        .intermediate = few.intermediate,
                                        .shared_intermediate = few.shared_intermediate,
                                        .dtype = DType::bf16}),
       .starts_early = true},
      few_front_kernel, few);
}

}  // namespace hyb::kernels::cuda
