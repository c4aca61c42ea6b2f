#include <bit>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/linear/matrix_tile.h"
#include "kernels/ops/moe.cuh"

namespace hyb::kernels::cuda {
namespace {

constexpr int warps_min = 4, warps_max = 32;
constexpr int visits_of_a_warp = 256;
constexpr int counts_max = 16384;  ///< 64 KB of them: 4 warps where there are 4096 experts

struct PlaceParams {
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
__device__ __forceinline__ void each_visit(const PlaceParams& p, Body&& body) {
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

/// Sums of all values before each, and at the end that of all, by a warp.
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

/// Turns each warp's count of an expert into that of the warps before it; the totals are in
/// first_place.
__device__ __forceinline__ void sum_warps(const PlaceParams& p, const Tables& tables) {
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

/// Writes where the experts' places and tiles start.
__device__ __forceinline__ void write_tiles(const PlaceParams& p, const Tables& tables) {
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
__global__ void __launch_bounds__(warps_max* warp_size) sort_visits_kernel(const PlaceParams p) {
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
  start_next_and_wait();
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
       .shared_bytes = static_cast<std::size_t>(warps * experts + 2 * (experts + 1)) * sizeof(int)},
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

namespace {

/// One of the two products: y[place,:] = activation(weight[expert] * row of x + bias[expert]).
struct ProductParams {
  const bf16* x;
  std::int64_t x_stride;
  int inner;
  AnyWeight weight;
  const float* bias;  ///< of all experts' rows; null: 0
  bf16* y;
  const std::int32_t *tiles, *first_place, *visit_of;
  int columns, active;    ///< of y; experts of a token
  bool is_activated;      ///< with an activation x's rows are tokens, else places
  Activation activation;  ///< gated only where is_activated
};

template <typename T, WeightCode Code>
struct GroupShared {
  TileShared<T, Code> tile;
  SharedArray<int, T::tokens> x_rows;
};

/// The row of the expert's weight of row `output` of a tile. With a gate, 8 gates and their 8 ups
/// take turns, so that a thread gets both sums of an element of y.
__device__ __forceinline__ int weight_row(const ProductParams& p, int output) {
  if (!p.activation.gated) return output < p.columns ? output : -1;
  const int column = output / 16 * 8 + output % 8;
  return column < p.columns ? column + output / 8 % 2 * p.columns : -1;
}

/// Two neighbours of a row of y.
__device__ __forceinline__ void write_pair(const ProductParams& p, std::int64_t place, int column,
                                           float low, float high) {
  if (column >= p.columns) return;
  *reinterpret_cast<std::uint32_t*>(p.y + place * p.columns + column) = pack_bf16(low, high);
}

__device__ __forceinline__ float as_written(float value) { return to_float(round_bf16(value)); }

/// The two adjacent elements of `sums` in row half `half` of 16 rows, or of two tiles
/// of them with a gate. `bias`: of the expert's rows, or null.
__device__ __forceinline__ void write_sums(const ProductParams& p, const float* bias,
                                           std::int64_t place, int output, int half,
                                           const float (&sums)[4], const float (&next)[4]) {
  const int own = static_cast<int>(threadIdx.x) % 4 * 2;
  float low = sums[half * 2], high = sums[half * 2 + 1];
  float next_low = next[half * 2], next_high = next[half * 2 + 1];
  if (bias != nullptr) {
    const auto of = [&](int at) {
      const int row = weight_row(p, at + own);
      return row < 0 ? 0.0F : bias[row];
    };
    low += of(output);
    high += of(output + 1);
    next_low += of(output + 8);
    next_high += of(output + 9);
  }
  const auto active = [&](float value, float up) {
    return activated(p.activation, as_written(value), as_written(up));
  };
  if (p.activation.gated) {
    write_pair(p, place, output / 2 + own, active(low, next_low), active(high, next_high));
  } else if (p.is_activated) {
    write_pair(p, place, output + own, active(low, 0.0F), active(high, 0.0F));
    write_pair(p, place, output + own + 8, active(next_low, 0.0F), active(next_high, 0.0F));
  } else {
    write_pair(p, place, output + own, low, high);
    write_pair(p, place, output + own + 8, next_low, next_high);
  }
}

/// Block (i, tile): 1/gridDim.x of the weight rows of the tile's expert, for the tile's tokens,
/// which are gathered in place. Blocks past the last tile have nothing to do: the number of
/// tiles is known on the device only. Bounds as linear's, with codes or without, and like there a
/// row's answer does not depend on the other rows.
template <WeightCode Code, typename T>
__global__ void __launch_bounds__(T::threads, min_blocks<Code>)
    moe_tiles_kernel(const ProductParams p) {
  auto& shared = dynamic_shared<GroupShared<T, Code>>();
  const int tile = static_cast<int>(blockIdx.y);
  const int output = static_cast<int>(blockIdx.x) * T::outputs;
  start_next_and_wait();
  if (tile >= p.tiles[0]) return;
  const std::int64_t expert = p.tiles[2 + 2 * tile], first = p.tiles[3 + 2 * tile];
  const auto left = static_cast<int>(p.first_place[expert + 1] - first);
  for (int i = static_cast<int>(threadIdx.x); i < T::tokens; i += T::threads) {
    const auto place = static_cast<int>(first) + i;
    const int row = i < left && p.is_activated ? p.visit_of[place] / p.active : place;
    shared.x_rows[i] = i < left ? row : -1;
  }
  sync_block();

  TileOperands<Code> operands = {.x = p.x, .x_stride = p.x_stride, .inner = p.inner, .weight = {}};
  if constexpr (Code == WeightCode::plain) {
    operands.weight = p.weight.lane_row<Code>(expert, 0);
  } else {
    operands.weight = p.weight.coded(expert);
  }
  float sums[T::tiles_m][T::tiles_n][4] = {};
  multiply_tile(
      shared.tile, operands, [&](int i) { return shared.x_rows[i]; },
      [&](int i) { return weight_row(p, output + i); }, [] {}, sums);

  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float* const bias = p.bias == nullptr ? nullptr : p.bias + expert * p.weight.rows;
#pragma unroll
  for (int m = 0; m < T::tiles_m; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = T::first_token(warp) + m * 16 + half * 8 + lane / 4;
      if (row >= left) continue;
#pragma unroll
      for (int n = 0; n < T::tiles_n; n += 2) {
        write_sums(p, bias, first + row, output + T::first_output(warp) + n * 8, half, sums[m][n],
                   sums[m][n + 1]);
      }
    }
  }
}

template <typename T>
void run_tile(Stream& stream, const ProductParams& params, std::int64_t tiles) {
  // With a gate a last half of 8 outputs has a tile too.
  const std::int64_t outputs =
      params.activation.gated ? (params.columns + 7) / 8 * 16 : std::int64_t{params.columns};
  visit_any_code(params.weight.code, [&]<WeightCode Code>() {
    using Coded = typename T::template For<Code>;
    launch(stream,
           {.blocks = dim3(pieces(outputs, T::outputs), static_cast<unsigned>(tiles)),
            .threads = T::threads,
            .shared_bytes = sizeof(GroupShared<Coded, Code>)},
           moe_tiles_kernel<Code, Coded>, params);
  });
}

using Tile16 = Tile<1, 4, 1, 2>;   ///< 16 x 64
using Tile32 = Tile<1, 4, 2, 2>;   ///< 32 x 64
using Tile64 = Tile<2, 4, 2, 4>;   ///< 64 x 128
using Tile128 = Tile<2, 4, 4, 4>;  ///< 128 x 128

void run(Stream& stream, const ProductParams& params, const MoeShape& shape) {
  const int tokens = tile_tokens(shape);
  const std::int64_t tiles = tiles_max(shape.tokens * shape.active, shape.experts, tokens);
  if (tokens == Tile16::tokens) return run_tile<Tile16>(stream, params, tiles);
  if (tokens == Tile32::tokens) return run_tile<Tile32>(stream, params, tiles);
  if (tokens == Tile64::tokens) return run_tile<Tile64>(stream, params, tiles);
  run_tile<Tile128>(stream, params, tiles);
}

}  // namespace

/// Half a tile stays empty where tokens are distributed evenly and each expert has one and a half.
int tile_tokens(const MoeShape& shape) {
  const std::int64_t each = shape.tokens * shape.active / shape.experts;
  if (each <= Tile16::tokens) return Tile16::tokens;
  if (each <= 2 * Tile32::tokens) return Tile32::tokens;
  if (each <= 2 * Tile64::tokens) return Tile64::tokens;
  return Tile128::tokens;
}

void tile_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room) {
  const MoeShape& shape = products.shape;
  const auto hidden = static_cast<int>(shape.expert_width()),
             width = static_cast<int>(shape.intermediate);
  const Activation activation = products.activation;
  ProductParams params = {.x = products.x.as<bf16>(),
                          .x_stride = products.x.row_stride,
                          .inner = hidden,
                          .weight = any_weight(*products.gate_up),
                          .bias = products.gate_up_bias,
                          .y = room.inner.as<bf16>(),
                          .tiles = room.tiles.as<std::int32_t>(),
                          .first_place = room.first_place.as<std::int32_t>(),
                          .visit_of = room.visit_of.as<std::int32_t>(),
                          .columns = width,
                          .active = static_cast<int>(shape.active),
                          .is_activated = true,
                          .activation = activation};
  run(stream, params, shape);
  params.x = room.inner.as<bf16>();
  params.x_stride = shape.intermediate;
  params.inner = width;
  params.weight = any_weight(*products.down);
  params.bias = products.down_bias;
  params.y = room.outputs.as<bf16>();
  params.columns = hidden;
  params.is_activated = params.activation.gated = false;
  run(stream, params, shape);
}

}  // namespace hyb::kernels::cuda
