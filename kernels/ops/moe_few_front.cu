#include <bit>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/linear/input_rows.h"
#include "kernels/ops/moe_few.h"
#include "kernels/ops/moe_split.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int vector = vector_size<bf16>;
constexpr std::size_t front_blocks_max = 2;    ///< of a processor: more would only norm x again
constexpr std::size_t system_bytes = 1 << 10;  ///< of shared memory that each block takes besides

constexpr int words_max = static_cast<int>(few_experts_max) / 32;

struct alignas(16) FrontShared {
  PairTotals totals;
  SharedArray<unsigned, words_max> visited;        ///< a bit for every expert that is
  SharedArray<int, words_max + 1> visited_before;  ///< how many of them in lower words
  SharedArray<int, 1> is_last;
};

/// The router's rows, and behind its last one the shared expert's gate.
template <typename T>
__device__ __forceinline__ TileRows<T> router_rows(const FewMoe& p, int tile) {
  TileRows<T> to(static_cast<const T*>(p.router), p.hidden, p.route.experts, tile, false);
  const int row = tile * pair_columns + lane_id() / 4;
  for (int g = 0; g < 2; ++g) {
    if (p.shared_gate != nullptr && row + g * skinny_group >= p.route.experts) {
      to.rows[g] = static_cast<const T*>(p.shared_gate);
    }
  }
  return to;
}

/// Of a tile behind the router's.
__device__ __forceinline__ TileRows<bf16> rows_behind(const FewMoe& p, int tile) {
  tile -= p.tiles.router;
  if (tile < p.tiles.shared) {
    return {p.shared_gate_up, p.hidden, p.shared_intermediate, tile, p.is_gated};
  }
  return {p.latent_in, p.hidden, p.expert_width, tile - p.tiles.shared, false};
}

/// Calls body(rows) with the rows of a tile, which are the router's type's or bf16.
template <typename Router, typename Body>
__device__ __forceinline__ void visit_rows(const FewMoe& p, int tile, Body&& body) {
  if constexpr (std::is_same_v<Router, bf16>) {
    body(tile < p.tiles.router ? router_rows<bf16>(p, tile) : rows_behind(p, tile));
  } else if (tile < p.tiles.router) {
    body(router_rows<Router>(p, tile));
  } else {
    body(rows_behind(p, tile));
  }
}

template <typename Router>
__device__ __forceinline__ void load_first(PairPieces& pieces, const FewMoe& p, int tile,
                                           const SkinnyRange& range) {
  visit_rows<Router>(p, tile, [&](const auto& weight) { load_pieces(pieces, weight.rows, range); });
}

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

/// What the block has of the shared expert's or the latent tile.
__device__ __forceinline__ void write_rows(const FewMoe& p, const FrontShared& shared, int tile) {
  const int token = static_cast<int>(threadIdx.x) / pair_columns;
  const int column = static_cast<int>(threadIdx.x) % pair_columns;
  tile -= p.tiles.router;
  if (token >= p.tokens) return;
  if (tile >= p.tiles.shared) {
    const int at = (tile - p.tiles.shared) * pair_columns + column;
    if (at >= p.expert_width) return;
    p.latent[token * p.expert_width + at] = round_bf16(shared.totals.sum(token, column));
    return;
  }
  const int columns = p.is_gated ? skinny_group : pair_columns;
  const int at = tile * columns + column;
  if (column >= columns || at >= p.shared_intermediate) return;
  p.shared[token * p.shared_intermediate + at] =
      activated(shared.totals, token, column, p.is_gated);
}

/// Writes what the block has of a tile; true to all threads where these were the last logits.
__device__ __forceinline__ bool write_front(const FewMoe& p, FrontShared& shared, int tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / pair_columns, column = thread % pair_columns;
  if (tile >= p.tiles.router) {
    write_rows(p, shared, tile);
    return false;
  }
  const int expert = tile * pair_columns + column;
  if (token < p.tokens && expert < p.route.experts) {
    p.logits[token * p.route.experts + expert] = shared.totals.sum(token, column);
  } else if (token < p.tokens && expert == p.route.experts && p.shared_gate != nullptr) {
    p.shared_logit[token] = shared.totals.sum(token, column);
  }
  sync_block();
  if (thread == 0) {
    fence();
    const bool is_last = atomic_add(p.ticket, 1U) + 1 == static_cast<unsigned>(p.tiles.router);
    fence();
    if (is_last) *p.ticket = 0;
    shared.is_last[0] = is_last ? 1 : 0;
  }
  sync_block();
  return shared.is_last[0] != 0;
}

/// A block owns tiles of 16 weight rows, the router's first; its warps take turns in chunks of k.
/// While the block with the last logits chooses the experts, the others are at the tiles behind.
/// Sums are within (K+4) * 2^-23 * sum_k |x*W|, of a router in f32 within (3K+12) * 2^-23, the norm
/// within (H+8) * 2^-24.
template <typename Router>
__global__ void __launch_bounds__(few_threads, 2) few_front_kernel(const FewMoe p) {
  auto& shared = dynamic_shared<FrontShared>();
  auto* const rows = reinterpret_cast<bf16*>(&shared + 1);
  auto* const keys = reinterpret_cast<unsigned*>(rows + p.tokens * p.hidden);
  const SkinnyRange range{.inner = p.hidden, .first = warp_id(), .step = few_warps};
  const bool is_high = p.tokens > skinny_rows_max / 2;
  const auto x = [&](int first_row, int k) {
    const int row = lane_id() / 4 + first_row;
    return row < p.tokens && k < p.hidden ? load16(rows + row * p.hidden + k) : uint4{};
  };

  PairPieces pieces;
  int tile = static_cast<int>(blockIdx.x);
  load_first<Router>(pieces, p, tile, range);
  prefetch_norm(p.norm, p.hidden);
  let_next_kernel_start();
  wait_for_previous_kernel();
  stage_rows<few_warps>(rows, p.x, p.x_stride, p.tokens, p.hidden, p.norm);
  sync_block();
  if (blockIdx.x == 0 && p.normed != nullptr) write_normed(p, rows);
  bool chooses = false;
  while (tile < p.tiles.count()) {
    float sums[2][4] = {};
    visit_rows<Router>(p, tile, [&](const auto& weight) {
      multiply_rows(pieces, weight.rows, range, is_high, x, sums);
    });
    shared.totals.put(is_high, sums);
    sync_block();
    chooses = write_front(p, shared, tile) || chooses;
    tile += static_cast<int>(gridDim.x);
    if (tile < p.tiles.count()) load_first<Router>(pieces, p, tile, range);
    sync_block();  // the totals have been read
  }
  if (chooses) choose(p, shared, keys);
}

}  // namespace

std::size_t few_front_bytes(int tokens, int hidden, int experts) {
  return sizeof(FrontShared) + static_cast<std::size_t>(tokens) * hidden * sizeof(bf16) +
         static_cast<std::size_t>(std::min(tokens, few_warps)) * experts * sizeof(unsigned);
}

void run_few_front(Stream& stream, const FewMoe& few) {
  const std::size_t bytes = few_front_bytes(few.tokens, few.hidden, few.route.experts);
  const std::size_t blocks = std::clamp<std::size_t>(
      (stream.shared_bytes_max() + system_bytes) / (bytes + system_bytes), 1, front_blocks_max);
  launch(stream,
         {.blocks = static_cast<unsigned>(
              std::min(few.tiles.count(), static_cast<int>(blocks) * stream.processors())),
          .threads = few_threads,
          .shared_bytes = bytes,
          .starts_early = true},
         few.router_is_f32 ? few_front_kernel<float> : few_front_kernel<bf16>, few);
}

}  // namespace hyb::kernels::cuda
