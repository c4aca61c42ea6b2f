#include "kernels/cuda/launch.h"
#include "kernels/linear/linear.cuh"
#include "kernels/linear/matrix_tile.h"

namespace hyb::kernels::cuda {
namespace {

/// The row of W of a tile's row. With a gate, 8 gates and their 8 ups take turns, so that a
/// thread gets both sums of an element of y.
template <typename Y>
__device__ __forceinline__ int weight_row(const Dense<bf16, Y>& p, int output) {
  if (!p.is_gated) return output < p.outputs ? output : -1;
  const int column = output / 16 * 8 + output % 8;
  return column < p.columns ? column + output / 8 % 2 * p.columns : -1;
}

/// Writes the thread's elements of the tile whose corner is (token, output).
template <typename T, typename Y>
__device__ __forceinline__ void write_sums(const Dense<bf16, Y>& p, int token, int output,
                                           const float (&sums)[T::tiles_m][T::tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int m = 0; m < T::tiles_m; ++m) {
#pragma unroll
    for (int n = 0; n < T::tiles_n; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = token + m * 16 + lane / 4 + i / 2 * 8;
        const int column = lane % 4 * 2 + i % 2;
        if (p.is_gated) {
          write(p, row, (output + n * 8) / 2 + column, sums[m][n][i], sums[m][n + 1][i]);
        } else {
          write(p, row, output + n * 8 + column, sums[m][n][i], 0.0F);
          write(p, row, output + n * 8 + 8 + column, sums[m][n + 1][i], 0.0F);
        }
      }
    }
  }
}

/// A block owns a tile of y and walks k through a ring of stages. Sums of one element are added in
/// ascending k in every tile size, so a row's answer does not depend on the other rows. Within
/// (K+4) * 2^-23 * |scale| * sum_k |x*W| of the exact sum, with codes K+5, not counting the
/// roundings: activations stay bf16, and levels and scales are exact.
template <WeightCode Code, typename T, typename Y>
__global__ void __launch_bounds__(T::threads, min_blocks<Code>)
    matrix_kernel(const Dense<bf16, Y> p) {
  auto& shared = dynamic_shared<TileShared<T, Code>>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int token = static_cast<int>(blockIdx.y) * T::tokens;
  const int output = static_cast<int>(blockIdx.x) * T::outputs;
  const int warp_token = T::first_token(warp), warp_output = T::first_output(warp);
  TileOperands<Code> operands = {.x = p.x, .x_stride = p.x_stride, .inner = p.inner, .weight = {}};
  if constexpr (Code == WeightCode::plain) {
    operands.weight = static_cast<const bf16*>(p.weight);
  } else {
    operands.weight = p.coded;
  }
  float sums[T::tiles_m][T::tiles_n][4] = {};
  let_next_kernel_start();
  multiply_tile(
      shared, operands, [&](int row) { return token + row < p.tokens ? token + row : -1; },
      [&](int row) { return weight_row(p, output + row); }, [] { wait_for_previous_kernel(); },
      sums);
  write_sums<T>(p, token + warp_token, output + warp_output, sums);
}

template <typename T, typename Y>
dim3 blocks_of(const Dense<bf16, Y>& dense) {
  return dim3(pieces(dense.outputs, T::outputs), pieces(dense.tokens, T::tokens));
}

template <typename T, WeightCode Code, typename Y>
void run_tile(Stream& stream, const Dense<bf16, Y>& dense) {
  using Coded = typename T::template For<Code>;
  launch(stream,
         {.blocks = blocks_of<T>(dense),
          .threads = T::threads,
          .shared_bytes = sizeof(TileShared<Coded, Code>)},
         matrix_kernel<Code, Coded, Y>, dense);
}

using WideTile = Tile<2, 4, 4, 4>;    ///< 128 x 128
using NarrowTile = Tile<1, 4, 2, 2>;  ///< 32 x 64
/// 16 x 16: a warp for itself, with 20 KB of the weight in flight.
using SmallTile = Tile<1, 1, 1, 2, 128, 6>;

/// Says whether the tile is not mostly empty, and its blocks are enough for half of the card.
template <typename T, typename Y>
bool is_filled(const Stream& stream, const Dense<bf16, Y>& dense) {
  const dim3 blocks = blocks_of<T>(dense);
  return dense.tokens > T::tokens / 2 &&
         std::int64_t{blocks.x} * blocks.y * 2 >= stream.processors();
}

template <typename Y>
void run(Stream& stream, const Dense<bf16, Y>& dense, WeightCode code) {
  visit_any_code(code, [&]<WeightCode Code>() {
    if (is_filled<WideTile>(stream, dense)) return run_tile<WideTile, Code>(stream, dense);
    if (is_filled<NarrowTile>(stream, dense)) return run_tile<NarrowTile, Code>(stream, dense);
    run_tile<SmallTile, Code>(stream, dense);
  });
}

}  // namespace

void run_matrix(Stream& stream, const Dense<bf16, bf16>& dense, WeightCode code) {
  run(stream, dense, code);
}
void run_matrix(Stream& stream, const Dense<bf16, float>& dense, WeightCode code) {
  run(stream, dense, code);
}

}  // namespace hyb::kernels::cuda
