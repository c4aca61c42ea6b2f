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
  const int inner = p.expert_width;
  const TileRows<bf16> weight(p.gate_up + p.visited[1 + v] * halves * width * inner, inner,
                              p.intermediate, tile, p.is_gated);
  const SkinnyRange range{.inner = inner, .first = warp_id(), .step = few_warps};
  PairPieces pieces;
  load_pieces(pieces, weight.rows, range);

  const std::int32_t* const visitors = p.visitors + v * skinny_rows_max;
  const int row = lane_id() / 4;
  const bf16* const x = p.latent_in == nullptr ? p.normed : p.latent;
  const bf16* const low = visitors[row] < 0 ? nullptr : x + row * inner;
  const bf16* const high = visitors[row + 8] < 0 ? nullptr : x + (row + 8) * inner;
  const bool is_high = p.tokens > skinny_rows_max / 2;
  float sums[2][4] = {};
  multiply_rows(
      pieces, weight.rows, range, is_high,
      [&](int first_row, int k) {
        const bf16* const from = first_row > 0 ? high : low;
        return from != nullptr && k < inner ? load16(from + k) : uint4{};
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

inline constexpr int units_of(int inner) { return (inner + unit_elements - 1) / unit_elements; }

/// A matrix that all tokens go through.
struct DenseTerm {
  const bf16 *weight, *x;  ///< [columns, inner], [T, inner]
  int inner;               ///< 0: there is none
};

/// y = (add ? y : 0) + scale * (gate * first + second + weighted sum over the visited experts)
struct FewSum {
  DenseTerm first, second;
  const float* gate_logit;  ///< [T], null: 1
  const bf16 *down, *inner;
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
struct Unit {
  const bf16* rows[1];  ///< this lane's
  SkinnyRange range;    ///< inner 0: past the last unit
  int v;                ///< a term, or which of the visited experts

  __device__ Unit(const FewSum& p, int unit, int visited) {
    const int firsts = units_of(p.first.inner), dense = firsts + units_of(p.second.inner);
    const int column = static_cast<int>(blockIdx.x) * skinny_group + lane_id() / 4;
    std::int64_t row = at_most(column, p.columns - 1);
    const bf16* weight = p.down;
    if (unit < dense) {
      const bool is_first = unit < firsts;
      v = is_first ? first_term : second_term;
      weight = is_first ? p.first.weight : p.second.weight;
      range = {.inner = is_first ? p.first.inner : p.second.inner,
               .first = (is_first ? unit : unit - firsts) * unit_chunks,
               .step = 1};
    } else {
      const int parts = at_least(units_of(p.intermediate), 1);
      v = (unit - dense) / parts;
      range = {.inner = v < visited ? p.intermediate : 0,
               .first = (unit - dense) % parts * unit_chunks,
               .step = 1};
      if (v < visited) row += static_cast<std::int64_t>(p.visited[1 + v]) * p.columns;
    }
    rows[0] = weight + row * range.inner;
  }
};

using UnitPieces = SkinnyPieces<1, unit_chunks>;

/// Rows l/4 and l/4+8 of x for a unit, and how much its sums count for them.
struct UnitInput {
  const bf16 *low, *high;  ///< null: the token does not visit
  float low_weight, high_weight;

  __device__ UnitInput(const FewSum& p, const Unit& unit) {
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

  __device__ static float gate(const FewSum& p, int row) {
    if (p.gate_logit == nullptr || row >= p.tokens) return 1.0F;
    return 1.0F / (1.0F + expf(-p.gate_logit[row]));
  }
};

__device__ __forceinline__ void add_unit(const FewSum& p, const Unit& unit, const Unit& next,
                                         UnitPieces& pieces, float (&totals)[1][4]) {
  const UnitInput input(p, unit);
  float sums[1][4] = {};
  multiply_pieces(
      pieces, unit.range, p.tokens > skinny_rows_max / 2,
      [&](int first_row, int k) {
        const bf16* const from = first_row > 0 ? input.high : input.low;
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
/// the other terms among the j, besides one rounding of y.
__global__ void __launch_bounds__(few_threads, 2) few_sum_kernel(const FewSum p) {
  auto& totals = shared_object<SkinnyTotals<1, few_warps>>();
  const bool is_known = warp_id() < units_of(p.first.inner) + units_of(p.second.inner);
  UnitPieces pieces;
  if (is_known) {
    const Unit known(p, warp_id(), 0);
    load_pieces(pieces, known.rows, known.range);
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int visited = p.intermediate == 0 ? 0 : p.visited[0];
  Unit unit(p, warp_id(), visited);
  if (!is_known) load_pieces(pieces, unit.rows, unit.range);

  float sums[1][4] = {};
#pragma unroll 1
  for (int u = warp_id() + few_warps; unit.range.inner > 0; u += few_warps) {
    const Unit next(p, u, visited);
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

void run_sum(Stream& stream, const FewSum& sum) {
  launch(
      stream,
      {.blocks = pieces(sum.columns, skinny_group), .threads = few_threads, .starts_early = true},
      few_sum_kernel, sum);
}

void run_inner(Stream& stream, const FewMoe& few) {
  const std::int64_t visited_max =
      std::min<std::int64_t>(few.route.experts, std::int64_t{few.tokens} * few.route.active);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tiles_of(few.intermediate, few.is_gated)),
                         static_cast<unsigned>(visited_max)),
          .threads = few_threads,
          .starts_early = true},
         few_inner_kernel, few);
}

}  // namespace

void run_few_experts(Stream& stream, const FewMoe& few) {
  run_inner(stream, few);
  const DenseTerm shared = {few.shared_down, few.shared, few.shared_intermediate};
  const DenseTerm back = {few.latent_out, few.latent_sum, few.expert_width};
  const float* const gate = few.shared_gate == nullptr ? nullptr : few.shared_logit;
  const FewSum experts = {.first = {},
                          .second = {},
                          .gate_logit = nullptr,
                          .down = few.down,
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
  FewSum sum = experts;
  sum.first = shared;
  sum.gate_logit = gate;
  if (few.latent_in == nullptr) return run_sum(stream, sum);
  FewSum latent = experts;
  latent.y = few.latent_sum;
  latent.y_stride = latent.columns = few.expert_width;
  latent.add = false;
  latent.scale = 1.0F;
  run_sum(stream, latent);
  sum.second = back;
  sum.intermediate = 0;
  run_sum(stream, sum);
}

}  // namespace hyb::kernels::cuda
