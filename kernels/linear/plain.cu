#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/dense.h"
#include "kernels/linear/weight_at.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr std::int64_t grid_rows_max = 65535;

template <typename X, typename Y>
__device__ __forceinline__ float product(const Dense<X, Y>& p, int token, int output) {
  const X* const x = p.x + token * p.x_stride;
  const std::int64_t row = static_cast<std::int64_t>(output) * p.inner;
  float sum = 0.0F;
  for (int k = static_cast<int>(threadIdx.x) % warp_size; k < p.inner; k += warp_size) {
    sum += to_float(x[k]) * weight_at(p.weight, p.weight_type, row + k);
  }
  return warp_sum(sum);
}

/// A warp owns one column of y in one token; a lane every 32nd k. Within (K+4) * 2^-23 * |scale| *
/// sum_k |x*W| of the exact sum, besides the roundings.
template <typename X, typename Y>
__global__ void __launch_bounds__(block_warps* warp_size) plain_kernel(const Dense<X, Y> p) {
  const int column =
      static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (column >= p.columns) return;
  for (int token = static_cast<int>(blockIdx.y); token < p.tokens;
       token += static_cast<int>(gridDim.y)) {
    const float sum = product(p, token, column);
    const float up =
        p.epilogue == Epilogue::silu_gated ? product(p, token, p.columns + column) : 0.0F;
    if (threadIdx.x % warp_size == 0) write(p, token, column, sum, up);
  }
}

template <typename X, typename Y>
void run(Stream& stream, const Dense<X, Y>& dense) {
  const auto rows = static_cast<unsigned>(std::min<std::int64_t>(dense.tokens, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(dense.columns, block_warps), rows),
          .threads = block_warps * warp_size,
          .starts_early = true},
         plain_kernel<X, Y>, dense);
}

}  // namespace

void run_plain(Stream& stream, const Dense<float, float>& dense) { run(stream, dense); }
void run_plain(Stream& stream, const Dense<bf16, bf16>& dense) { run(stream, dense); }
void run_plain(Stream& stream, const Dense<bf16, float>& dense) { run(stream, dense); }

}  // namespace hyb::kernels::cuda
