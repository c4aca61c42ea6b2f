#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/routes.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 256;
constexpr std::int64_t blocks_max = 4096;

struct Params {
  float* x;
  std::int64_t row_stride, columns;
  float cap;
};

/// Blocks of y take a row each.
__global__ void __launch_bounds__(block_threads) cap_kernel(const Params p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
  float* const row = p.x + blockIdx.y * p.row_stride;
  start_next_and_wait();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
       i < p.columns; i += step) {
    row[i] = p.cap * tanhf(row[i] / p.cap);
  }
}

}  // namespace

void cap(Stream& stream, const Cap& op) {
  if (op.x.size() == 0) return;
  const std::int64_t blocks = (op.x.dim(1) + block_threads - 1) / block_threads;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(std::min(blocks, blocks_max)),
                         static_cast<unsigned>(op.x.dim(0))),
          .threads = block_threads},
         cap_kernel,
         Params{.x = op.x.as<float>(),
                .row_stride = op.x.row_stride,
                .columns = op.x.dim(1),
                .cap = op.cap});
}

}  // namespace hyb::kernels::cuda
