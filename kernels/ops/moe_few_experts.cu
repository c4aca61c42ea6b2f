#include "kernels/cuda/launch.h"
#include "kernels/ops/moe_few.h"

namespace hyb::kernels::cuda {
namespace {

/// Block (tile, v) owns 16 rows of the v-th visited expert, for all its tokens at once. Bounds as
/// the first kernel's.
__global__ void __launch_bounds__(few_threads, 2) few_inner_kernel(const FewMoe p) {
  auto& totals = shared_object<PairTotals>();
  const int v = static_cast<int>(blockIdx.y), tile = static_cast<int>(blockIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (v >= p.visited[0]) return;
  const std::int64_t width = p.intermediate, halves = p.is_gated ? 2 : 1;
  const TileRows weight(p.gate_up + p.visited[1 + v] * halves * width * p.hidden, p.hidden,
                        p.intermediate, tile, p.is_gated);
  const SkinnyRange range{.inner = p.hidden, .first = warp_id(), .step = few_warps};
  PairPieces pieces;
  load_pieces(pieces, weight.rows, range);

  const std::int32_t* const visitors = p.visitors + v * skinny_rows_max;
  const int row = lane_id() / 4;
  const bf16* const low = visitors[row] < 0 ? nullptr : p.normed + row * p.hidden;
  const bf16* const high = visitors[row + 8] < 0 ? nullptr : p.normed + (row + 8) * p.hidden;
  const bool is_high = p.tokens > skinny_rows_max / 2;
  float sums[2][4] = {};
  multiply_rows(
      pieces, weight.rows, range, is_high,
      [&](bool is_upper, int k) {
        const bf16* const from = is_upper ? high : low;
        return from != nullptr && k < p.hidden ? load16(from + k) : uint4{};
      },
      sums);
  totals.put(is_high, sums);
  sync_block();

  const int token = static_cast<int>(threadIdx.x) / pair_columns;
  const int column = static_cast<int>(threadIdx.x) % pair_columns;
  const int columns = p.is_gated ? skinny_group : pair_columns;
  const int at = tile * columns + column;
  const std::int64_t visit = visitors[token];
  if (visit < 0 || column >= columns || at >= p.intermediate) return;
  p.inner[visit * width + at] = activated(totals, token, column, p.is_gated);
}

constexpr int unit_chunks = 4;
constexpr int unit_elements = unit_chunks * skinny_chunk;

/// A warp's piece of work: some chunks of one expert's rows, or of the shared one's. The shared
/// expert's come first, for they can be loaded before the experts are known.
struct Unit {
  const bf16* rows[1];  ///< this lane's
  SkinnyRange range;    ///< inner 0: past the last unit
  int v;                ///< -1: the shared expert

  __device__ Unit(const FewMoe& p, int unit, int shared_units, int parts, int visited) {
    const bool is_shared = unit < shared_units;
    const int routed = unit - shared_units;
    v = is_shared ? -1 : routed / parts;
    range = {.inner = is_shared ? p.shared_intermediate : p.intermediate,
             .first = (is_shared ? unit : routed % parts) * unit_chunks,
             .step = 1};
    const int column = static_cast<int>(blockIdx.x) * skinny_group + lane_id() / 4;
    std::int64_t row = at_most(column, p.hidden - 1);
    if (v >= visited) {
      range.inner = 0;
    } else if (v >= 0) {
      row += static_cast<std::int64_t>(p.visited[1 + v]) * p.hidden;
    }
    rows[0] = (is_shared ? p.shared_down : p.down) + row * range.inner;
  }
};

using UnitPieces = SkinnyPieces<1, unit_chunks>;

/// Rows l/4 and l/4+8 of x for a unit, and how much its sums count for them.
struct UnitInput {
  const bf16 *low, *high;  ///< null: the token does not visit
  float low_weight, high_weight;

  __device__ UnitInput(const FewMoe& p, const Unit& unit) {
    const int row = lane_id() / 4;
    if (unit.v < 0) {
      const std::int64_t width = p.shared_intermediate;
      low = row < p.tokens ? p.shared + row * width : nullptr;
      high = row + 8 < p.tokens ? p.shared + (row + 8) * width : nullptr;
      low_weight = high_weight = 1.0F;
      return;
    }
    const std::int64_t first = p.visitors[unit.v * skinny_rows_max + row];
    const std::int64_t second = p.visitors[unit.v * skinny_rows_max + row + 8];
    low = first < 0 ? nullptr : p.inner + first * p.intermediate;
    high = second < 0 ? nullptr : p.inner + second * p.intermediate;
    low_weight = first < 0 ? 0.0F : p.weights[first];
    high_weight = second < 0 ? 0.0F : p.weights[second];
  }
};

__device__ __forceinline__ void add_unit(const FewMoe& p, const Unit& unit, const Unit& next,
                                         UnitPieces& pieces, float (&totals)[1][4]) {
  const UnitInput input(p, unit);
  float sums[1][4] = {};
  multiply_pieces(
      pieces, unit.range, p.tokens > skinny_rows_max / 2,
      [&](bool is_upper, int k) {
        const bf16* const from = is_upper ? input.high : input.low;
        return from != nullptr && k < unit.range.inner ? load16(from + k) : uint4{};
      },
      sums, next.rows, next.range);
  // An infinite weight of an expert that a token does not visit is none of its business.
  for (int i = 0; i < 2; ++i) {
    if (input.low != nullptr) totals[0][i] += input.low_weight * sums[0][i];
    if (input.high != nullptr) totals[0][2 + i] += input.high_weight * sums[0][2 + i];
  }
}

/// A block owns 8 columns of y; units go to its warps in turns, and each warp adds up its own in
/// ascending order of experts. Within (I+k+12) * 2^-23 * |scale| * sum_j |weight_j| * sum_k |x*W|,
/// the shared expert among the j, besides one rounding of y.
__global__ void __launch_bounds__(few_threads, 2) few_down_kernel(const FewMoe p) {
  auto& totals = shared_object<SkinnyTotals<1, few_warps>>();
  const int parts = (p.intermediate + unit_elements - 1) / unit_elements;
  const int shared_units = (p.shared_intermediate + unit_elements - 1) / unit_elements;
  UnitPieces pieces;
  if (warp_id() < shared_units) {
    const Unit known(p, warp_id(), shared_units, parts, 0);
    load_pieces(pieces, known.rows, known.range);
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int visited = p.visited[0];
  Unit unit(p, warp_id(), shared_units, parts, visited);
  if (warp_id() >= shared_units) load_pieces(pieces, unit.rows, unit.range);

  float sums[1][4] = {};
#pragma unroll 1
  for (int u = warp_id() + few_warps; unit.range.inner > 0; u += few_warps) {
    const Unit next(p, u, shared_units, parts, visited);
    add_unit(p, unit, next, pieces, sums);
    unit = next;
  }
  totals.put(p.tokens > skinny_rows_max / 2, sums);
  sync_block();

  const int token = static_cast<int>(threadIdx.x) / skinny_group;
  const int column = static_cast<int>(threadIdx.x) % skinny_group;
  const int at = static_cast<int>(blockIdx.x) * skinny_group + column;
  if (token >= p.tokens || at >= p.hidden) return;
  bf16* const y = p.y + token * p.y_stride + at;
  *y = round_bf16(to_float(*y) + p.scale * totals.sum(token, column));
}

}  // namespace

void run_few_experts(Stream& stream, const FewMoe& few) {
  const std::int64_t visited_max =
      std::min<std::int64_t>(few.route.experts, std::int64_t{few.tokens} * few.route.active);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tiles_of(few.intermediate, few.is_gated)),
                         static_cast<unsigned>(visited_max)),
          .threads = few_threads,
          .starts_early = true},
         few_inner_kernel, few);
  launch(stream,
         {.blocks = pieces(few.hidden, skinny_group), .threads = few_threads, .starts_early = true},
         few_down_kernel, few);
}

}  // namespace hyb::kernels::cuda
