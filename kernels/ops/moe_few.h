#pragma once

#include "kernels/cuda/activation.h"
#include "kernels/linear/dense.h"
#include "kernels/ops/moe_device.h"
#include "kernels/ops/moe_skinny.h"
#include "kernels/ops/route_warp.h"

/// What the kernels of moe for few tokens share. Included by .cu files only.
namespace hyb::kernels::cuda {

inline constexpr int few_warps = 8;
inline constexpr int few_threads = few_warps * warp_size;
inline constexpr int pair_columns = 2 * skinny_group;  ///< weight rows of a tile

/// Tiles of the first kernel, in this order.
struct FrontTiles {
  int router, shared, latent;

  __host__ __device__ int count() const { return router + shared + latent; }
};

struct FewMoe {
  const bf16* x;
  bf16* y;
  std::int64_t x_stride, y_stride;
  DenseNorm norm;
  const void *router, *shared_gate;  ///< bf16, or both f32; no gate: null
  const bf16 *gate_up, *down, *shared_gate_up, *shared_down;
  const bf16 *latent_in, *latent_out;  ///< null: experts see normed rows
  RouteParams route;
  unsigned* ticket;
  bf16* normed;  ///< null where nobody reads them
  float *logits, *shared_logit;
  std::int32_t* chosen;
  float* weights;
  bf16 *latent, *latent_sum, *shared;
  std::int32_t *visited, *visitors;
  bf16* inner;
  int tokens, hidden, intermediate, shared_intermediate;
  int expert_width;  ///< H, or L of latent experts
  bool router_is_f32, is_gated;
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
/// lies past the end is the last row again: nobody writes its sums.
template <typename T>
struct TileRows {
  const T* rows[2];

  __device__ TileRows(const T* weight, int inner, int width, int tile, bool is_gated) {
    const int row = tile * (is_gated ? skinny_group : pair_columns) + lane_id() / 4;
    const std::int64_t first = at_most(row, width - 1);
    const std::int64_t second = is_gated ? width + first : at_most(row + skinny_group, width - 1);
    rows[0] = weight + first * inner;
    rows[1] = weight + second * inner;
  }
};

inline constexpr int tiles_of(int width, bool is_gated) {
  const int columns = is_gated ? skinny_group : pair_columns;
  return (width + columns - 1) / columns;
}

using PairPieces = SkinnyPieces<2, 2>;
using PairTotals = SkinnyTotals<2, few_warps>;

/// The activated column that thread (row, column) of a tile has, from sums rounded as if they had
/// been written.
__device__ __forceinline__ bf16 activated(const PairTotals& totals, int row, int column,
                                          bool is_gated) {
  const float first = to_float(round_bf16(totals.sum(row, column)));
  if (!is_gated) return round_bf16(relu2(first));
  return round_bf16(
      silu_gated(first, to_float(round_bf16(totals.sum(row, column + skinny_group)))));
}

/// The first kernel: norm, router with the choice, gate and up of the shared expert, what latent
/// experts see.
void run_few_front(Stream& stream, const FewMoe& few);
/// Shared memory that it needs.
std::size_t few_front_bytes(int tokens, int hidden, int experts);
/// The other two, or three: gate and up of the visited experts; down of all, and the weighted sum;
/// with latent experts the way back with the shared expert's down.
void run_few_experts(Stream& stream, const FewMoe& few);

}  // namespace hyb::kernels::cuda
