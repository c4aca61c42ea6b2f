#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/coded_device.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr std::int64_t grid_rows_max = 65535;

template <typename Y>
struct Params {
  Dense<bf16, Y> dense;
  CodedMatrix weight;
};

template <WeightCode Code, typename Y>
__device__ __forceinline__ float product(const Params<Y>& p, int token, int output) {
  const bf16* const x = p.dense.x + token * p.dense.x_stride;
  float sum = 0.0F;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) % warp_size; k < p.dense.inner; k += warp_size) {
    sum += to_float(x[k]) * coded_element<Code>(p.weight, output, k);
  }
  return warp_sum(sum);
}

/// As plain_kernel: a warp owns one column of y in one token. Within (K+5) * 2^-23 * |scale| *
/// sum_k |x*W| of the exact sum, besides the roundings.
template <WeightCode Code, typename Y>
__global__ void __launch_bounds__(block_warps* warp_size) coded_plain_kernel(const Params<Y> p) {
  const int column =
      static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (column >= p.dense.columns) return;
  for (int token = static_cast<int>(blockIdx.y); token < p.dense.tokens;
       token += static_cast<int>(gridDim.y)) {
    const float sum = product<Code>(p, token, column);
    const float up = p.dense.epilogue == Epilogue::silu_gated
                         ? product<Code>(p, token, p.dense.columns + column)
                         : 0.0F;
    if (threadIdx.x % warp_size == 0) write(p.dense, token, column, sum, up);
  }
}

template <WeightCode Code, typename Y>
void run_code(Stream& stream, const Params<Y>& params) {
  const auto rows =
      static_cast<unsigned>(std::min<std::int64_t>(params.dense.tokens, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(params.dense.columns, block_warps), rows),
          .threads = block_warps * warp_size,
          .starts_early = true},
         coded_plain_kernel<Code, Y>, params);
}

template <typename Y>
void run(Stream& stream, const Params<Y>& params, WeightCode code) {
  visit_code(code, [&]<WeightCode Code>() { run_code<Code>(stream, params); });
}

}  // namespace

void run_codes_plain(Stream& stream, const Dense<bf16, bf16>& dense, const CodedMatrix& weight,
                     WeightCode code) {
  run(stream, Params<bf16>{dense, weight}, code);
}
void run_codes_plain(Stream& stream, const Dense<bf16, float>& dense, const CodedMatrix& weight,
                     WeightCode code) {
  run(stream, Params<float>{dense, weight}, code);
}

}  // namespace hyb::kernels::cuda
