#include "kernels/cuda/launch.h"
#include "kernels/ops/moe_device.h"
#include "kernels/ops/moe_split.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int tiles = 2;  ///< of 16 tokens, which share a split of the weight
constexpr int block_tokens = tiles * skinny_rows_max;
constexpr int block_experts = 2 * skinny_group;

struct Params {
  const bf16* x;
  const float* router;
  float* logits;
  std::int64_t x_stride, logits_stride;
  int tokens, experts, inner;
};

struct Totals {
  SharedArray<SkinnyTotals<2, block_warps>, tiles> of;
};

/// Block (i, j): 16 experts of 32 tokens; its warps take turns in chunks of k, so that there is one
/// order for every row count. Within (3K+12) * 2^-23 * sum_k |x*W| of the exact sum.
__global__ void __launch_bounds__(block_warps* warp_size, 2)
    moe_split_logits_kernel(const Params p) {
  auto& totals = shared_object<Totals>().of;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int expert = static_cast<int>(blockIdx.x) * block_experts;
  const int token = static_cast<int>(blockIdx.y) * block_tokens;
  const float* rows[2];
  for (int g = 0; g < 2; ++g) {
    const int row = expert + g * skinny_group + lane / 4;
    rows[g] = p.router + static_cast<std::int64_t>(row < p.experts ? row : p.experts - 1) * p.inner;
  }
  const SkinnyRange range{.inner = p.inner, .first = warp, .step = block_warps};
  SplitPieces pieces;
  load_pieces(pieces, rows, range);
  let_next_kernel_start();
  wait_for_previous_kernel();

  float sums[tiles][2][4] = {};
  multiply_rows(
      pieces, rows, range, true,
      [&](int row, int k) {
        const int own = token + lane / 4 + row;
        return own < p.tokens && k < p.inner ? load16(p.x + own * p.x_stride + k) : uint4{};
      },
      sums);
  for (int m = 0; m < tiles; ++m) totals[m].put(true, sums[m]);
  sync_block();
  for (int i = static_cast<int>(threadIdx.x); i < block_tokens * block_experts;
       i += block_warps * warp_size) {
    const int row = i / block_experts, column = i % block_experts;
    if (token + row >= p.tokens || expert + column >= p.experts) continue;
    p.logits[(token + row) * p.logits_stride + expert + column] =
        totals[row / skinny_rows_max].sum(row % skinny_rows_max, column);
  }
}

}  // namespace

void router_logits(Stream& stream, const Tensor& x, const Weight& router, const Tensor& logits) {
  const bool is_split = x.dtype == DType::bf16 && router.dtype() == DType::f32 &&
                        is_vector_aligned(x.as<bf16>(), x.row_stride) && takes_pieces(router);
  if (!is_split) return linear(stream, {.x = x, .weight = &router, .y = logits});
  launch(stream,
         {.blocks = dim3(pieces(logits.dim(1), block_experts), pieces(x.dim(0), block_tokens)),
          .threads = block_warps * warp_size,
          .starts_early = true},
         moe_split_logits_kernel,
         {.x = x.as<bf16>(),
          .router = reinterpret_cast<const float*>(router.expert(0)),
          .logits = logits.as<float>(),
          .x_stride = x.row_stride,
          .logits_stride = logits.row_stride,
          .tokens = static_cast<int>(x.dim(0)),
          .experts = static_cast<int>(logits.dim(1)),
          .inner = static_cast<int>(x.dim(1))});
}

}  // namespace hyb::kernels::cuda
