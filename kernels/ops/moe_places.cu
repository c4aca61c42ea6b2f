#include <bit>

#include "kernels/cuda/launch.h"
#include "kernels/ops/moe_device.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int warps_min = 4, warps_max = 32;
constexpr int visits_of_a_warp = 256;
constexpr int counts_max = 16384;  ///< 64 KB of them: 4 warps where there are 4096 experts

struct Params {
  const std::int32_t* chosen;
  std::int32_t *first_place, *visit_of, *place_of, *tiles;
  int visits, experts, tile_tokens;
};

/// counts [warps,E], then [E+1] first places, then [E+1] first tiles.
struct Tables {
  int *counts, *first_place, *first_tile;
};

/// Calls body(visit, expert, peers) for the warp's slice of the visits, one to a lane, expert -1
/// where it ends; peers are the lanes that have the same expert. What one turn writes the next one
/// reads.
template <typename Body>
__device__ __forceinline__ void each_visit(const Params& p, Body&& body) {
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int turns = (p.visits + warps * warp_size - 1) / (warps * warp_size);
  for (int turn = 0; turn < turns; ++turn) {
    const int visit = (warp * turns + turn) * warp_size + lane;
    const int expert = visit < p.visits ? p.chosen[visit] : -1;
    const unsigned peers = match_any(static_cast<unsigned>(expert));
    body(visit, expert, peers);
    sync_warp();
  }
}

/// Sums of all values before each, and behind them that of all, by a warp.
template <typename Value>
__device__ __forceinline__ void sum_before(int count, int* sums, Value&& value) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int before = 0;
  for (int first = 0; first < count; first += warp_size) {
    const int own = first + lane < count ? value(first + lane) : 0;
    int sum = own;
    for (unsigned distance = 1; distance < warp_size; distance *= 2) {
      const int other = shuffle_up(sum, distance);
      if (lane >= static_cast<int>(distance)) sum += other;
    }
    if (first + lane < count) sums[first + lane] = before + sum - own;
    before += shuffle(sum, warp_size - 1);
  }
  if (lane == 0) sums[count] = before;
}

/// Turns each warp's count of an expert into that of the warps before it; the totals stand in
/// first_place.
__device__ __forceinline__ void sum_warps(const Params& p, const Tables& tables) {
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += static_cast<int>(blockDim.x)) {
    int before = 0;
    for (int warp = 0; warp < warps; ++warp) {
      int& count = tables.counts[warp * p.experts + e];
      const int own = count;
      count = before;
      before += own;
    }
    tables.first_place[e] = before;
  }
}

/// Writes where the experts' places and tiles begin.
__device__ __forceinline__ void write_tiles(const Params& p, const Tables& tables) {
  for (int e = static_cast<int>(threadIdx.x); e <= p.experts; e += static_cast<int>(blockDim.x)) {
    p.first_place[e] = tables.first_place[e];
    if (e == p.experts) {
      p.tiles[0] = tables.first_tile[e];
      continue;
    }
    for (int tile = tables.first_tile[e]; tile < tables.first_tile[e + 1]; ++tile) {
      p.tiles[2 + 2 * tile] = e;
      p.tiles[3 + 2 * tile] = tables.first_place[e] + (tile - tables.first_tile[e]) * p.tile_tokens;
    }
  }
}

/// One block: a stable sort of the visits by expert. Every warp counts and then places one slice of
/// them, so that places ascend with the visits.
__global__ void __launch_bounds__(warps_max* warp_size) sort_visits_kernel(const Params p) {
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  int* const counts = &dynamic_shared<int>();
  int* const first_place = counts + warps * p.experts;
  const Tables tables{counts, first_place, first_place + p.experts + 1};
  const auto count_of = [&](int expert) -> int& { return counts[warp * p.experts + expert]; };
  for (int i = static_cast<int>(threadIdx.x); i < warps * p.experts;
       i += static_cast<int>(blockDim.x)) {
    counts[i] = 0;
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  sync_block();
  each_visit(p, [&](int, int expert, unsigned peers) {
    if (expert >= 0 && std::countr_zero(peers) == lane) count_of(expert) += std::popcount(peers);
  });
  sync_block();
  sum_warps(p, tables);
  sync_block();
  if (warp == 0) {
    sum_before(p.experts, tables.first_tile,
               [&](int e) { return (tables.first_place[e] + p.tile_tokens - 1) / p.tile_tokens; });
    sync_warp();
    sum_before(p.experts, tables.first_place, [&](int e) { return tables.first_place[e]; });
  }
  sync_block();
  write_tiles(p, tables);
  each_visit(p, [&](int visit, int expert, unsigned peers) {
    if (expert >= 0) {
      const int place =
          tables.first_place[expert] + count_of(expert) + std::popcount(peers & ((1U << lane) - 1));
      p.visit_of[place] = visit;
      p.place_of[visit] = place;
    }
    sync_warp();
    if (expert >= 0 && std::countr_zero(peers) == lane) count_of(expert) += std::popcount(peers);
  });
}

}  // namespace

void sort_visits(Stream& stream, const MoeShape& shape, const MoeRoom& room, int tile_tokens) {
  const auto experts = static_cast<int>(shape.experts);
  const auto visits = static_cast<int>(shape.tokens * shape.active);
  const int warps = std::min({std::max(visits / visits_of_a_warp, warps_min), warps_max,
                              std::max(counts_max / experts, 1)});
  launch(
      stream,
      {.blocks = 1,
       .threads = static_cast<unsigned>(warps * warp_size),
       .shared_bytes = static_cast<std::size_t>(warps * experts + 2 * (experts + 1)) * sizeof(int),
       .starts_early = true},
      sort_visits_kernel,
      {.chosen = room.chosen.as<std::int32_t>(),
       .first_place = room.first_place.as<std::int32_t>(),
       .visit_of = room.visit_of.as<std::int32_t>(),
       .place_of = room.place_of.as<std::int32_t>(),
       .tiles = room.tiles.as<std::int32_t>(),
       .visits = static_cast<int>(shape.tokens * shape.active),
       .experts = experts,
       .tile_tokens = tile_tokens});
}

}  // namespace hyb::kernels::cuda
