#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/linear/row_tiles.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;
constexpr int stages = 3;          ///< steps in flight: with 2 blocks on a processor 96 KB
constexpr int k_step = 64;         ///< two halves of 32
constexpr int pieces_of_step = 4;  ///< of 16 bytes: rows l/4 and l/4+8 of the tile, twice

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  int tiles;  ///< of 16 rows of W
  int split;  ///< warps of a tile, which share the steps
};

/// A lane reads only what it copied itself: no barriers.
using Ring = SharedArray<SharedArray<SharedArray<uint4, warp_size>, pieces_of_step>, stages>;
struct Shared {
  SharedArray<Ring, block_warps> weights;
};

/// A matrix product for few tokens: W is the operand with 16 rows, x the one with 8 columns. A lane
/// holds 8 neighbours in k of its rows of both, 4 to each of two instructions: which k an element
/// stands for is the same in W and x, and that is all a product needs. So W goes from memory to
/// its registers, past the ring, and x through the first-level cache, without barriers.
/// `split` warps share a tile's steps; sums over k are in one order for every row count. Within
/// (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, besides the roundings.
template <int TilesN, typename Y>
__global__ void __launch_bounds__(block_threads, 2) skinny_kernel(const Params<Y> p) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int member = warp % p.split, inner = p.dense.inner;
  const int tile = static_cast<int>(blockIdx.x) * (block_warps / p.split) + warp / p.split;
  auto& ring = dynamic_shared<Shared>().weights[warp];
  const TileRows rows = rows_of(p.dense, tile);
  const auto* const weight = static_cast<const bf16*>(p.dense.weight) + lane % 4 * 8;
  const bf16* const low_row = weight + static_cast<std::int64_t>(rows.low) * inner;
  const bf16* const high_row = weight + static_cast<std::int64_t>(rows.high) * inner;
  const int k_end = tile < p.tiles ? inner : 0;
  const auto copy = [&](int k, int stage) {
#pragma unroll
    for (int half = 0; half < 2; ++half, k += 32) {
      const bool is_there = k + lane % 4 * 8 < k_end;
      cp_async16(&ring[stage][half * 2][lane], low_row + (is_there ? k : 0), is_there);
      cp_async16(&ring[stage][half * 2 + 1][lane], high_row + (is_there ? k : 0), is_there);
    }
    cp_async_commit();
  };

  let_next_kernel_start();
  for (int i = 0; i < stages; ++i) copy((member + i * p.split) * k_step, i);
  wait_for_previous_kernel();

  float sums[TilesN][4] = {};
  int stage = 0;
  for (int k = member * k_step; k < k_end; k += p.split * k_step) {
    cp_async_wait<stages - 1>();
#pragma unroll(TilesN < 8 ? 2 : 1)
    for (int half = 0; half < 2; ++half) {
      const uint4 w = load16(&ring[stage][half * 2][lane]);
      const uint4 v = load16(&ring[stage][half * 2 + 1][lane]);
      const int own = k + half * 32 + lane % 4 * 8;
      uint4 x[TilesN];
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        const int token = std::min(n * 8 + lane / 4, p.dense.tokens - 1);
        x[n] = {};
        if (own < inner) x[n] = load16(p.dense.x + token * p.dense.x_stride + own);
      }
#pragma unroll
      for (int n = 0; n < TilesN; ++n) {
        mma_bf16(sums[n], {w.x, v.x, w.y, v.y}, x[n].x, x[n].y);
        mma_bf16(sums[n], {w.z, v.z, w.w, v.w}, x[n].z, x[n].w);
      }
    }
    copy(k + stages * p.split * k_step, stage);
    stage = stage + 1 == stages ? 0 : stage + 1;
  }

  write_tile<block_warps>(p.dense, tile, 0, p.split, sums);
}

template <int TilesN, typename Y>
void run_tiles(Stream& stream, const Params<Y>& params) {
  launch(stream,
         {.blocks = pieces(params.tiles, block_warps / params.split),
          .threads = block_threads,
          .shared_bytes = std::max(sizeof(Shared), sizeof(TileSums<TilesN, block_warps>)),
          .starts_early = true},
         skinny_kernel<TilesN, Y>, params);
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense) {
  const int columns = dense.epilogue == Epilogue::silu_gated ? 8 : 16;
  const int tiles = static_cast<int>(pieces(dense.columns, columns));
  const int steps = (dense.inner + k_step - 1) / k_step;
  const Params<Y> params = {
      .dense = dense, .tiles = tiles, .split = warps_of_tile(stream, tiles, steps, block_warps)};
  if (dense.tokens <= 16) return run_tiles<2>(stream, params);
  if (dense.tokens <= 32) return run_tiles<4>(stream, params);
  run_tiles<skinny_tokens_max / 8>(stream, params);
}

}  // namespace

void run_skinny(Stream& stream, const Dense<bf16, bf16>& dense) { run(stream, dense); }
void run_skinny(Stream& stream, const Dense<bf16, float>& dense) { run(stream, dense); }

}  // namespace hyb::kernels::cuda
