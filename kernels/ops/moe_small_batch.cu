#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/semaphore.h"
#include "kernels/linear/input_rows.h"
#include "kernels/linear/linear.cuh"
#include "kernels/ops/moe.cuh"
#include "kernels/ops/moe_route.cuh"

/// moe for few tokens, in three kernels, or four with latent experts.
namespace hyb::kernels::cuda {

inline constexpr int small_batch_warps = 8;
inline constexpr int small_batch_threads = small_batch_warps * warp_size;
inline constexpr int pair_columns = 2 * skinny_group;  ///< weight rows of a tile

/// Tiles of the first kernel, in this order.
struct FrontTiles {
  int router, shared, latent;

  __host__ __device__ int count() const { return router + shared + latent; }
};

struct SmallBatchMoe {
  const bf16* x;
  bf16* y;
  std::int64_t x_stride, y_stride;
  DenseNorm norm;
  const void *router, *shared_gate;                      ///< bf16, or both f32; no gate: null
  AnyWeight gate_up, down, shared_gate_up, shared_down;  ///< by what they read: one code
  AnyWeight latent_in, latent_out;                       ///< no data: experts see normed rows
  RouteParams route;
  const float *router_bias, *gate_up_bias, *down_bias;  ///< of all rows; null: 0
  unsigned* semaphore;
  bf16* normed;  ///< null where they are not read
  float *logits, *shared_logit;
  std::int32_t* chosen;
  float* weights;
  bf16 *latent, *latent_sum, *shared;
  std::int32_t *visited, *visitors;
  bf16* inner;
  int tokens, hidden, intermediate, shared_intermediate;
  int expert_width;  ///< H, or L of latent experts
  bool router_is_f32;
  Activation activation;
  float scale;
  FrontTiles tiles;
};

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / warp_size; }
__device__ __forceinline__ int at_most(int value, int limit) {
  return value < limit ? value : limit;
}
__device__ __forceinline__ int at_least(int value, int limit) {
  return value > limit ? value : limit;
}

/// This lane's rows of tile `tile`: 8 gates and their 8 ups, or 16 rows one after the other. What
/// is past the end is the last row again, whose sums are not written.
template <typename Row>
struct TilePair {
  Row rows[2];
};
template <typename RowOf>
__device__ __forceinline__ auto rows_of_tile(int width, int tile, bool is_gated, RowOf&& row_of) {
  const int row = tile * (is_gated ? skinny_group : pair_columns) + lane_id() / 4;
  const std::int64_t first = at_most(row, width - 1);
  const std::int64_t second = is_gated ? width + first : at_most(row + skinny_group, width - 1);
  return TilePair<decltype(row_of(first))>{{row_of(first), row_of(second)}};
}

inline constexpr int tiles_of(int width, bool is_gated) {
  const int columns = is_gated ? skinny_group : pair_columns;
  return (width + columns - 1) / columns;
}

using PairPieces = SkinnyPieces<2, 2>;
using PairTotals = SkinnyTotals<2, small_batch_warps>;

/// The activated column `column` of row `row`, of which the ups are `columns` after the gates, from
/// sums rounded as if they had been written. `bias` is the column's, that of its up `up_bias` after
/// it; or null.
template <typename Totals>
__device__ __forceinline__ bf16 activated(const Totals& totals, int row, int column, int columns,
                                          const Activation& activation, const float* bias = nullptr,
                                          int up_bias = 0) {
  const auto sum = [&](int at) {
    float value = totals.sum(row, at);
    if (bias != nullptr) value += bias[at == column ? 0 : up_bias];
    return to_float(round_bf16(value));
  };
  return round_bf16(
      activated(activation, sum(column), activation.gated ? sum(column + columns) : 0.0F));
}

/// The first kernel: norm, router with the choice, gate and up of the shared expert, what latent
/// experts read.
void run_small_batch_front(Stream& stream, const SmallBatchMoe& few);
/// Shared memory that it needs.
std::size_t small_batch_front_bytes(int tokens, int hidden, int experts);
/// The other two, or three: gate and up of the visited experts; down of all, and the weighted sum;
/// with latent experts the way back with the shared expert's down.
void run_small_batch_experts(Stream& stream, const SmallBatchMoe& few);

namespace {

constexpr int vector = vector_size<bf16>;
constexpr std::size_t front_blocks_max = 2;  ///< of a processor: more would only norm x again
constexpr std::size_t system_bytes =
    1 << 10;  ///< of shared memory that the system takes for each block

constexpr int words_max = static_cast<int>(small_batch_experts_max) / 32;

struct alignas(16) FrontShared {
  PairTotals totals;
  SharedArray<unsigned, words_max> visited;        ///< a bit for every expert that is
  SharedArray<int, words_max + 1> visited_before;  ///< how many of them in lower words
  SharedArray<int, 1> is_last;
};

/// The router's rows, and after its last one the shared expert's gate.
template <typename T>
__device__ __forceinline__ auto router_rows(const SmallBatchMoe& p, int tile) {
  auto to = rows_of_tile(p.route.experts, tile, false, [&](std::int64_t row) {
    return static_cast<const T*>(p.router) + row * p.hidden;
  });
  const int row = tile * pair_columns + lane_id() / 4;
  for (int g = 0; g < 2; ++g) {
    if (p.shared_gate != nullptr && row + g * skinny_group >= p.route.experts) {
      to.rows[g] = static_cast<const T*>(p.shared_gate);
    }
  }
  return to;
}

/// Returns the rows of a tile after the router's.
template <WeightCode Code>
__device__ __forceinline__ auto rows_after_router(const SmallBatchMoe& p, int tile) {
  tile -= p.tiles.router;
  const bool is_shared = tile < p.tiles.shared;
  const AnyWeight& weight = is_shared ? p.shared_gate_up : p.latent_in;
  return rows_of_tile(is_shared ? p.shared_intermediate : p.expert_width,
                      is_shared ? tile : tile - p.tiles.shared, is_shared && p.activation.gated,
                      [&](std::int64_t row) { return weight.lane_row<Code>(0, row); });
}

/// The first pieces of a tile, of which the router's are of its own type.
template <typename Router, WeightCode Code>
__device__ __forceinline__ void load_first(PairPieces& pieces, const SmallBatchMoe& p, int tile,
                                           const SkinnyRange& range) {
  if (tile < p.tiles.router) {
    load_pieces(pieces, router_rows<Router>(p, tile).rows, range);
  } else {
    load_pieces(pieces, rows_after_router<Code>(p, tile).rows, range);
  }
}

/// The rows as the router saw them, for the next kernel.
__device__ __forceinline__ void write_normed(const SmallBatchMoe& p, const bf16* rows) {
  for (int i = static_cast<int>(threadIdx.x) * vector; i < p.tokens * p.hidden;
       i += small_batch_threads * vector) {
    store16(p.normed + i, load16(rows + i));
  }
}

/// Experts that some token visits, ascending, and the visits to each.
__device__ __forceinline__ void list_visits(const SmallBatchMoe& p, FrontShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int words = (p.route.experts + 31) / 32, visits = p.tokens * p.route.active;
  if (thread < words) shared.visited[thread] = 0;
  sync_block();
  for (int i = thread; i < visits; i += small_batch_threads) {
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
  for (int i = thread; i < shared.visited_before[words] * skinny_rows_max;
       i += small_batch_threads) {
    p.visitors[i] = -1;
  }
  sync_block();
  for (int i = thread; i < visits; i += small_batch_threads) {
    const int expert = p.chosen[i], word = expert / 32;
    const unsigned below = shared.visited[word] & ((1U << expert % 32) - 1);
    const int place = shared.visited_before[word] + std::popcount(below);
    p.visited[1 + place] = expert;
    p.visitors[place * skinny_rows_max + i / p.route.active] = i;
  }
}

/// Is called by the block that finds all logits written: it chooses for all tokens.
__device__ __forceinline__ void choose(const SmallBatchMoe& p, FrontShared& shared,
                                       unsigned* keys) {
  for (int t = warp_id(); t < p.tokens; t += small_batch_warps) {
    route_warp(p.route, p.logits + static_cast<std::int64_t>(t) * p.route.experts,
               keys + warp_id() * p.route.experts, p.chosen + t * p.route.active,
               p.weights + t * p.route.active);
  }
  sync_block();
  list_visits(p, shared);
}

/// Writes what the block has of the shared expert's or the latent tile.
__device__ __forceinline__ void write_rows(const SmallBatchMoe& p, const FrontShared& shared,
                                           int tile) {
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
  const int columns = p.activation.gated ? skinny_group : pair_columns;
  const int at = tile * columns + column;
  if (column >= columns || at >= p.shared_intermediate) return;
  p.shared[token * p.shared_intermediate + at] =
      activated(shared.totals, token, column, columns, p.activation);
}

/// Writes what the block has of a tile; true to all threads where these were the last logits.
__device__ __forceinline__ bool write_front(const SmallBatchMoe& p, FrontShared& shared, int tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / pair_columns, column = thread % pair_columns;
  if (tile >= p.tiles.router) {
    write_rows(p, shared, tile);
    return false;
  }
  const int expert = tile * pair_columns + column;
  if (token < p.tokens && expert < p.route.experts) {
    const float sum = shared.totals.sum(token, column);
    p.logits[token * p.route.experts + expert] =
        p.router_bias == nullptr ? sum : sum + p.router_bias[expert];
  } else if (token < p.tokens && expert == p.route.experts && p.shared_gate != nullptr) {
    p.shared_logit[token] = shared.totals.sum(token, column);
  }
  return is_last_of(p.tiles.router, p.semaphore, shared.is_last);
}

/// A block owns tiles of 16 weight rows, the router's first; its warps take turns in chunks of k.
/// While the block with the last logits chooses the experts, the others are at the tiles after
/// them. Sums are within (K+4) * 2^-23 * sum_k |x*W|, of a router in f32 within (3K+12) * 2^-23,
/// the norm within (H+8) * 2^-24.
template <typename Router, WeightCode Code>
__global__ void __launch_bounds__(small_batch_threads, 2)
    small_batch_front_kernel(const SmallBatchMoe p) {
  auto& shared = dynamic_shared<FrontShared>();
  auto* const rows = reinterpret_cast<bf16*>(&shared + 1);
  auto* const keys = reinterpret_cast<unsigned*>(rows + p.tokens * p.hidden);
  const SkinnyRange range{.inner = p.hidden, .first = warp_id(), .step = small_batch_warps};
  const bool is_high = p.tokens > skinny_rows_max / 2;
  const auto x = [&](int first_row, int k) {
    const int row = lane_id() / 4 + first_row;
    return row < p.tokens && k < p.hidden ? load16(rows + row * p.hidden + k) : uint4{};
  };

  PairPieces pieces;
  int tile = static_cast<int>(blockIdx.x);
  load_first<Router, Code>(pieces, p, tile, range);
  prefetch_norm(p.norm, p.hidden);
  start_next_and_wait();
  stage_rows<small_batch_warps, 4>(rows, p.x, p.x_stride, p.tokens, p.hidden, p.norm);
  sync_block();
  if (blockIdx.x == 0 && p.normed != nullptr) write_normed(p, rows);
  bool chooses = false;
  const auto multiply_tiles = [&](int end, auto&& rows_of) {
    while (tile < end) {
      float sums[2][4] = {};
      multiply_rows(pieces, rows_of(tile).rows, range, is_high, x, sums);
      shared.totals.put(is_high, sums);
      sync_block();
      chooses = write_front(p, shared, tile) || chooses;
      tile += static_cast<int>(gridDim.x);
      if (tile < p.tiles.count()) load_first<Router, Code>(pieces, p, tile, range);
      sync_block();  // the totals have been read
    }
  };
  // Two loops: what one of them keeps in registers is in the other's way.
  multiply_tiles(p.tiles.router, [&](int at) { return router_rows<Router>(p, at); });
  multiply_tiles(p.tiles.count(), [&](int at) { return rows_after_router<Code>(p, at); });
  if (chooses) choose(p, shared, keys);
}

}  // namespace

std::size_t small_batch_front_bytes(int tokens, int hidden, int experts) {
  return sizeof(FrontShared) + static_cast<std::size_t>(tokens) * hidden * sizeof(bf16) +
         static_cast<std::size_t>(std::min(tokens, small_batch_warps)) * experts * sizeof(unsigned);
}

void run_small_batch_front(Stream& stream, const SmallBatchMoe& few) {
  const std::size_t bytes = small_batch_front_bytes(few.tokens, few.hidden, few.route.experts);
  const std::size_t blocks = std::clamp<std::size_t>(
      (stream.shared_bytes_max() + system_bytes) / (bytes + system_bytes), 1, front_blocks_max);
  visit_any_code(few.gate_up.code, [&]<WeightCode Code>() {
    launch(stream,
           {.blocks = static_cast<unsigned>(
                std::min(few.tiles.count(), static_cast<int>(blocks) * stream.processors())),
            .threads = small_batch_threads,
            .shared_bytes = bytes},
           few.router_is_f32 ? small_batch_front_kernel<float, Code>
                             : small_batch_front_kernel<bf16, Code>,
           few);
  });
}

namespace {

constexpr int blocks_per_processor = 2;
/// A group's rows have this many chunks in flight; with sixteens there are no registers for more.
template <WeightCode Code>
constexpr int group_chunks = has_sixteens<Code> ? 2 : 4;

/// Columns of `inner` that a group of 8 rows of gate_up makes: 8, or with a gate 4 and their ups.
__host__ __device__ inline int columns_of_group(const Activation& activation) {
  return activation.gated ? skinny_group / 2 : skinny_group;
}
__host__ __device__ inline int groups_of_expert(const SmallBatchMoe& p) {
  const int columns = columns_of_group(p.activation);
  return (p.intermediate + columns - 1) / columns;
}

/// Returns the first column of group `at` of all, which is one of expert v's.
__device__ __forceinline__ int first_column(const SmallBatchMoe& p, int at, int v) {
  return (at - v * groups_of_expert(p)) * columns_of_group(p.activation);
}

/// Group `at` of all that the visited experts have, one expert after the other.
template <WeightCode Code>
struct ExpertGroup {
  using Row = std::conditional_t<Code == WeightCode::plain, const bf16*, LaneRow<Code>>;

  int v;    ///< which of the visited experts
  Row row;  ///< the lane's

  __device__ ExpertGroup(const SmallBatchMoe& p, int at) {
    v = at / groups_of_expert(p);
    const int columns = columns_of_group(p.activation), own = lane_id() / 4;
    const int column = at_most(first_column(p, at, v) + own % columns, p.intermediate - 1);
    const int up = own / columns * p.intermediate;
    row = p.gate_up.template lane_row<Code>(p.visited[1 + v], column + up);
  }
};

/// Writes what the block has of a group.
__device__ __forceinline__ void write_inner(const SmallBatchMoe& p,
                                            const SkinnyTotals<1, small_batch_warps>& totals, int v,
                                            int first) {
  const int token = static_cast<int>(threadIdx.x) / skinny_group;
  const int column = static_cast<int>(threadIdx.x) % skinny_group;
  const int columns = columns_of_group(p.activation);
  if (token >= p.tokens || column >= columns || first + column >= p.intermediate) return;
  const int visit = p.visitors[v * skinny_rows_max + token];
  if (visit < 0) return;
  const float* bias = nullptr;
  if (p.gate_up_bias != nullptr) {
    bias = p.gate_up_bias + p.visited[1 + v] * p.gate_up.rows + first + column;
  }
  const bf16 value = activated(totals, token, column, columns, p.activation, bias, p.intermediate);
  p.inner[std::int64_t{visit} * p.intermediate + first + column] = value;
}

/// A block owns a contiguous range of the visited experts' groups of 8 rows, each for all its
/// tokens at once, so that one wave of blocks has an equal share each. Its warps take turns in
/// chunks of k: the order of a sum depends on nothing else. A group's first chunks are on their way
/// while the one before it is multiplied. Bounds as the first kernel's.
template <WeightCode Code>
__global__ void __launch_bounds__(small_batch_threads, blocks_per_processor)
    small_batch_inner_kernel(const SmallBatchMoe p) {
  // Two: a group's sums are read while those of the next one are written.
  auto& totals = shared_object<SharedArray<SkinnyTotals<1, small_batch_warps>, 2>>();
  start_next_and_wait();
  const std::int64_t block = blockIdx.x, all = p.visited[0] * groups_of_expert(p);
  const int begin = static_cast<int>(block * all / gridDim.x);
  const int end = static_cast<int>((block + 1) * all / gridDim.x);
  if (begin == end) return;
  const SkinnyRange whole{.inner = p.expert_width, .first = warp_id(), .step = small_batch_warps};
  const bf16* const x = p.latent_in.data == nullptr ? p.normed : p.latent;
  const bool is_high = p.tokens > skinny_rows_max / 2;
  SkinnyPieces<1, group_chunks<Code>> pieces;
  ExpertGroup<Code> own(p, begin);
  const typename ExpertGroup<Code>::Row first[1] = {own.row};
  load_pieces(pieces, first, whole);
#pragma unroll 1
  for (int group = begin; group < end; ++group) {
    const bool has_next = group + 1 < end;
    const ExpertGroup<Code> next = has_next ? ExpertGroup<Code>(p, group + 1) : own;
    const std::int32_t* const visitors = p.visitors + own.v * skinny_rows_max;
    const int row = lane_id() / 4;
    const bf16* const low = visitors[row] < 0 ? nullptr : x + row * p.expert_width;
    const bf16* const high = visitors[row + 8] < 0 ? nullptr : x + (row + 8) * p.expert_width;
    const typename ExpertGroup<Code>::Row of_lane[1] = {own.row};
    auto lane = lane_rows(of_lane);
    float sums[1][4] = {};
    bool is_last = false;
#pragma unroll 1
    for (SkinnyRange range = whole; !is_last; range.first += group_chunks<Code> * range.step) {
      SkinnyRange following = range;
      following.first += group_chunks<Code> * range.step;
      is_last = following.first * skinny_chunk >= range.inner;
      const typename ExpertGroup<Code>::Row rows[1] = {is_last ? next.row : own.row};
      if (is_last) following = {has_next ? whole.inner : 0, whole.first, whole.step};
      multiply_pieces(
          pieces, range, is_high,
          [&](int first_row, int k) {
            const bf16* const from = first_row > 0 ? high : low;
            return from != nullptr && k < range.inner ? load16(from + k) : uint4{};
          },
          sums, lane, rows, following);
    }
    auto& of_group = totals[(group - begin) % 2];
    of_group.put(is_high, sums);
    sync_block();
    write_inner(p, of_group, own.v, first_column(p, hidden(group), own.v));
    own = next;
  }
}

constexpr int unit_chunks = 4;
constexpr int unit_elements = unit_chunks * skinny_chunk;

inline constexpr int units_of(int inner) { return (inner + unit_elements - 1) / unit_elements; }

/// A matrix that all tokens go through.
struct DenseTerm {
  AnyWeight weight;  ///< [columns, inner]
  const bf16* x;     ///< [T, inner]
  int inner;         ///< 0: there is none
};

/// y = (add ? y : 0) + scale * (gate * first + second + weighted sum over the visited experts)
struct SmallBatchSum {
  DenseTerm first, second;
  const float* gate_logit;  ///< [T], null: 1
  AnyWeight down;           ///< with the code of the terms
  const float* down_bias;   ///< of all experts' rows; null: 0
  const bf16* inner;
  const float* weights;
  const std::int32_t *visited, *visitors;
  int intermediate;  ///< 0: no experts
  bf16* y;
  std::int64_t y_stride;
  int tokens, columns;
  bool add;
  float scale;
};

constexpr int first_term = -2, second_term = -1;  ///< before the experts

/// A warp's piece of work: some chunks of rows of one of the matrices. Those that all tokens go
/// through come first, for they can be loaded before the experts are known.
template <WeightCode Code>
struct Unit {
  std::conditional_t<Code == WeightCode::plain, const bf16*, LaneRow<Code>> rows[1];  ///< lane's
  SkinnyRange range;  ///< inner 0: past the last unit
  int v;              ///< a term, or which of the visited experts

  __device__ Unit(const SmallBatchSum& p, int unit, int visited) {
    const int firsts = units_of(p.first.inner), dense = firsts + units_of(p.second.inner);
    const int column = static_cast<int>(blockIdx.x) * skinny_group + lane_id() / 4;
    const AnyWeight* weight = &p.down;
    std::int64_t expert = 0;
    if (unit < dense) {
      const bool is_first = unit < firsts;
      v = is_first ? first_term : second_term;
      weight = is_first ? &p.first.weight : &p.second.weight;
      range = {.inner = is_first ? p.first.inner : p.second.inner,
               .first = (is_first ? unit : unit - firsts) * unit_chunks,
               .step = 1};
    } else {
      const int parts = at_least(units_of(p.intermediate), 1);
      v = (unit - dense) / parts;
      range = {.inner = v < visited ? p.intermediate : 0,
               .first = (unit - dense) % parts * unit_chunks,
               .step = 1};
      if (v < visited) expert = p.visited[1 + v];
    }
    rows[0] = weight->lane_row<Code>(expert, at_most(column, p.columns - 1));
  }
};

using UnitPieces = SkinnyPieces<1, unit_chunks>;

/// Rows l/4 and l/4+8 of x for a unit, and how much its sums count for them.
struct UnitInput {
  const bf16 *low, *high;  ///< null: the token does not visit
  float low_weight, high_weight;

  template <WeightCode Code>
  __device__ UnitInput(const SmallBatchSum& p, const Unit<Code>& unit) {
    const int row = lane_id() / 4;
    if (unit.v < 0) {
      const bool is_first = unit.v == first_term;
      const bf16* const x = is_first ? p.first.x : p.second.x;
      const std::int64_t width = unit.range.inner;
      low = row < p.tokens ? x + row * width : nullptr;
      high = row + 8 < p.tokens ? x + (row + 8) * width : nullptr;
      low_weight = is_first ? gate(p, row) : 1.0F;
      high_weight = is_first ? gate(p, row + 8) : 1.0F;
      return;
    }
    const std::int64_t first = p.visitors[unit.v * skinny_rows_max + row];
    const std::int64_t second = p.visitors[unit.v * skinny_rows_max + row + 8];
    low = first < 0 ? nullptr : p.inner + first * p.intermediate;
    high = second < 0 ? nullptr : p.inner + second * p.intermediate;
    low_weight = first < 0 ? 0.0F : p.weights[first];
    high_weight = second < 0 ? 0.0F : p.weights[second];
  }

  __device__ static float gate(const SmallBatchSum& p, int row) {
    if (p.gate_logit == nullptr || row >= p.tokens) return 1.0F;
    return 1.0F / (1.0F + expf(-p.gate_logit[row]));
  }
};

template <WeightCode Code>
__device__ __forceinline__ void add_unit(const SmallBatchSum& p, const Unit<Code>& unit,
                                         const Unit<Code>& next, UnitPieces& pieces,
                                         float (&totals)[1][4]) {
  const UnitInput input(p, unit);
  float sums[1][4] = {};
  auto own = lane_rows(unit.rows);
  multiply_pieces(
      pieces, unit.range, p.tokens > skinny_rows_max / 2,
      [&](int first_row, int k) {
        const bf16* const from = first_row > 0 ? input.high : input.low;
        return from != nullptr && k < unit.range.inner ? load16(from + k) : uint4{};
      },
      sums, own, next.rows, next.range);
  // An infinite weight of an expert that a token does not visit is none of its business.
  for (int i = 0; i < 2; ++i) {
    if (p.down_bias != nullptr && unit.v >= 0 && unit.range.first == 0) {
      const int column = static_cast<int>(blockIdx.x) * skinny_group + lane_id() % 4 * 2 + i;
      const std::int64_t rows = std::int64_t{p.visited[1 + unit.v]} * p.columns;
      const float bias = p.down_bias[rows + at_most(column, p.columns - 1)];
      sums[0][i] += bias;
      sums[0][2 + i] += bias;
    }
    if (input.low != nullptr) totals[0][i] += input.low_weight * sums[0][i];
    if (input.high != nullptr) totals[0][2 + i] += input.high_weight * sums[0][2 + i];
  }
}

/// A block owns 8 columns of y; units go to its warps in turns, and each warp adds up its own in
/// ascending order of experts. Within (I+k+12) * 2^-23 * |scale| * sum_j |weight_j| * sum_k |x*W|,
/// the other terms among the j, not counting one rounding of y.
template <WeightCode Code, int Warps>
__global__ void __launch_bounds__(Warps* warp_size, blocks_per_processor* small_batch_warps / Warps)
    small_batch_sum_kernel(const SmallBatchSum p) {
  auto& totals = shared_object<SkinnyTotals<1, Warps>>();
  const bool is_known = warp_id() < units_of(p.first.inner) + units_of(p.second.inner);
  UnitPieces pieces;
  if (is_known) {
    const Unit<Code> known(p, warp_id(), 0);
    load_pieces(pieces, known.rows, known.range);
  }
  start_next_and_wait();
  const int visited = p.intermediate == 0 ? 0 : p.visited[0];
  Unit<Code> unit(p, warp_id(), visited);
  if (!is_known) load_pieces(pieces, unit.rows, unit.range);

  float sums[1][4] = {};
#pragma unroll 1
  for (int u = warp_id() + Warps; unit.range.inner > 0; u += Warps) {
    const Unit<Code> next(p, u, visited);
    add_unit(p, unit, next, pieces, sums);
    unit = next;
  }
  totals.put(p.tokens > skinny_rows_max / 2, sums);
  sync_block();

  const int token = static_cast<int>(threadIdx.x) / skinny_group;
  const int column = static_cast<int>(threadIdx.x) % skinny_group;
  const int at = static_cast<int>(blockIdx.x) * skinny_group + column;
  if (token >= p.tokens || at >= p.columns) return;
  bf16* const y = p.y + token * p.y_stride + at;
  *y = round_bf16((p.add ? to_float(*y) : 0.0F) + p.scale * totals.sum(token, column));
}

/// Blocks of 8 warps, or where that would be more than one wave of 4, which find room twice as
/// often. By the width alone, for no sum may depend on the row count.
void run_sum(Stream& stream, const SmallBatchSum& sum) {
  static_assert(skinny_rows_max * skinny_group <= small_batch_warps / 2 * warp_size);
  const unsigned blocks = pieces(sum.columns, skinny_group);
  const bool is_one_wave =
      blocks <= static_cast<unsigned>(blocks_per_processor * stream.processors());
  visit_any_code(sum.down.code, [&]<WeightCode Code>() {
    const auto run = [&]<int Warps>(std::integral_constant<int, Warps>) {
      launch(stream, {.blocks = blocks, .threads = Warps * warp_size},
             small_batch_sum_kernel<Code, Warps>, sum);
    };
    if (is_one_wave) return run(std::integral_constant<int, small_batch_warps>());
    run(std::integral_constant<int, small_batch_warps / 2>());
  });
}

void run_inner(Stream& stream, const SmallBatchMoe& few) {
  const std::int64_t visited_max =
      std::min<std::int64_t>(few.route.experts, std::int64_t{few.tokens} * few.route.active);
  const std::int64_t groups = visited_max * groups_of_expert(few);
  visit_any_code(few.gate_up.code, [&]<WeightCode Code>() {
    launch(stream,
           {.blocks = static_cast<unsigned>(std::min<std::int64_t>(
                groups, std::int64_t{blocks_per_processor} * stream.processors())),
            .threads = small_batch_threads},
           small_batch_inner_kernel<Code>, few);
  });
}

}  // namespace

void run_small_batch_experts(Stream& stream, const SmallBatchMoe& few) {
  run_inner(stream, few);
  const DenseTerm shared = {few.shared_down, few.shared, few.shared_intermediate};
  const DenseTerm back = {few.latent_out, few.latent_sum, few.expert_width};
  const float* const gate = few.shared_gate == nullptr ? nullptr : few.shared_logit;
  const SmallBatchSum experts = {.first = {},
                                 .second = {},
                                 .gate_logit = nullptr,
                                 .down = few.down,
                                 .down_bias = few.down_bias,
                                 .inner = few.inner,
                                 .weights = few.weights,
                                 .visited = few.visited,
                                 .visitors = few.visitors,
                                 .intermediate = few.intermediate,
                                 .y = few.y,
                                 .y_stride = few.y_stride,
                                 .tokens = few.tokens,
                                 .columns = few.hidden,
                                 .add = true,
                                 .scale = few.scale};
  SmallBatchSum sum = experts;
  sum.first = shared;
  sum.gate_logit = gate;
  if (few.latent_in.data == nullptr) return run_sum(stream, sum);
  SmallBatchSum latent = experts;
  latent.y = few.latent_sum;
  latent.y_stride = latent.columns = few.expert_width;
  latent.add = false;
  latent.scale = 1.0F;
  run_sum(stream, latent);
  sum.second = back;
  sum.intermediate = 0;
  run_sum(stream, sum);
}

namespace {

/// Takes routers of one type without codes: the gate is the router's last row.
bool takes_router(const FusedMoe& op) {
  const auto takes = [](const Weight& weight) {
    return weight.code() == WeightCode::plain && takes_pieces(weight);
  };
  return takes(*op.router) &&
         (op.shared_gate == nullptr ||
          (op.shared_gate->dtype() == op.router->dtype() && takes(*op.shared_gate)));
}

bool takes_weights(const FusedMoe& op) {
  const Weight &gate_up = *op.gate_up, &down = *op.down;
  return takes_router(op) && is_like(&gate_up, gate_up) && is_like(op.shared_gate_up, gate_up) &&
         is_like(op.latent_in, gate_up) && is_like(&down, down) && is_like(op.shared_down, down) &&
         is_like(op.latent_out, down);
}

FrontTiles front_tiles(const FusedMoe& op) {
  const auto rows = [](const Weight* weight) {
    return weight == nullptr ? 0 : static_cast<int>(weight->rows());
  };
  const int shared = op.shared_down == nullptr ? 0 : static_cast<int>(op.shared_down->columns());
  return {.router = tiles_of(rows(op.router) + rows(op.shared_gate), false),
          .shared = tiles_of(shared, op.activation.gated),
          .latent = tiles_of(rows(op.latent_in), false)};
}

SmallBatchMoe small_batch_of(const FusedMoe& op, const MoeRoom& room) {
  const bool has_shared = op.shared_down != nullptr, is_latent = op.latent_in != nullptr;
  const auto weight = [](const Weight* from) {
    return from == nullptr ? AnyWeight{} : any_weight(*from);
  };
  return {.x = op.x.as<bf16>(),
          .y = op.y.as<bf16>(),
          .x_stride = op.x.row_stride,
          .y_stride = op.y.row_stride,
          .norm = norm_of(op.norm),
          .router = op.router->expert(0),
          .shared_gate = op.shared_gate == nullptr ? nullptr : op.shared_gate->expert(0),
          .gate_up = weight(op.gate_up),
          .down = weight(op.down),
          .shared_gate_up = weight(op.shared_gate_up),
          .shared_down = weight(op.shared_down),
          .latent_in = weight(op.latent_in),
          .latent_out = weight(op.latent_out),
          .route = {.bias = op.bias.as<float>(),
                    .expert_scale = op.expert_scale.as<float>(),
                    .experts = static_cast<int>(op.router->rows()),
                    .active = static_cast<int>(op.active),
                    .routing = op.routing},
          .router_bias = op.router_bias.as<float>(),
          .gate_up_bias = op.gate_up_bias.as<float>(),
          .down_bias = op.down_bias.as<float>(),
          .semaphore = room.semaphores.as<unsigned>(),
          .normed = is_latent ? nullptr : room.normed.as<bf16>(),
          .logits = room.logits.as<float>(),
          .shared_logit = room.shared_logit.as<float>(),
          .chosen = room.chosen.as<std::int32_t>(),
          .weights = room.weights.as<float>(),
          .latent = room.latent.as<bf16>(),
          .latent_sum = room.latent_sum.as<bf16>(),
          .shared = has_shared ? room.shared.as<bf16>() : nullptr,
          .visited = room.visited.as<std::int32_t>(),
          .visitors = room.visitors.as<std::int32_t>(),
          .inner = room.inner.as<bf16>(),
          .tokens = static_cast<int>(op.x.dim(0)),
          .hidden = static_cast<int>(op.x.dim(1)),
          .intermediate = static_cast<int>(op.down->columns()),
          .shared_intermediate = has_shared ? static_cast<int>(op.shared_down->columns()) : 0,
          .expert_width = static_cast<int>(op.down->rows()),
          .router_is_f32 = op.router->dtype() == DType::f32,
          .activation = op.activation,
          .scale = op.scale,
          .tiles = front_tiles(op)};
}

}  // namespace

bool small_batch_takes(const Stream& stream, const FusedMoe& op, const MoeShape& shape) {
  return !stream.batch_invariant() && !op.weighs_input && op.router_x.empty() && op.add &&
         !op.shared_activation && shape.tokens <= small_batch_tokens_max &&
         shape.tokens * shape.active <= small_batch_visits_max &&
         shape.tokens * op.norm.groups <= norm_slices_max &&
         shape.experts <= small_batch_experts_max && takes_vectors(op.x) &&
         (op.norm.gate.empty() || takes_vectors(op.norm.gate)) && takes_weights(op) &&
         small_batch_front_bytes(static_cast<int>(shape.tokens), static_cast<int>(shape.hidden),
                                 static_cast<int>(shape.experts)) <= stream.shared_bytes_max();
}

void small_batch_moe(Stream& stream, const FusedMoe& op, const MoeRoom& room) {
  const SmallBatchMoe few = small_batch_of(op, room);
  run_small_batch_front(stream, few);
  run_small_batch_experts(stream, few);
}

}  // namespace hyb::kernels::cuda
