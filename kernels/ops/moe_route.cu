#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/moe_route.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;

template <typename T>
struct Params {
  const T* logits;
  std::int32_t* chosen;
  float* weights;
  std::int64_t logits_stride, chosen_stride, weights_stride;
  std::int64_t tokens;
  RouteParams route;
};

/// A warp owns a token.
template <typename T>
__global__ void __launch_bounds__(block_warps* warp_size) moe_route_kernel(const Params<T> p) {
  unsigned* const keys = &dynamic_shared<unsigned>();
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * block_warps + warp;
  start_next_and_wait();
  if (token >= p.tokens) return;
  route_warp(p.route, p.logits + token * p.logits_stride, keys + warp * p.route.experts,
             p.chosen + token * p.chosen_stride, p.weights + token * p.weights_stride);
}

template <typename T>
void run(Stream& stream, const MoeRoute& op) {
  const Params<T> params = {.logits = op.logits.as<T>(),
                            .chosen = op.chosen.as<std::int32_t>(),
                            .weights = op.weights.as<float>(),
                            .logits_stride = op.logits.row_stride,
                            .chosen_stride = op.chosen.row_stride,
                            .weights_stride = op.weights.row_stride,
                            .tokens = op.logits.dim(0),
                            .route = {.bias = op.bias.as<float>(),
                                      .expert_scale = op.expert_scale.as<float>(),
                                      .experts = static_cast<int>(op.logits.dim(1)),
                                      .active = static_cast<int>(op.chosen.dim(1)),
                                      .routing = op.routing}};
  launch(
      stream,
      {.blocks = pieces(params.tokens, block_warps),
       .threads = block_warps * warp_size,
       .shared_bytes = block_warps * sizeof(unsigned) * static_cast<std::size_t>(op.logits.dim(1))},
      moe_route_kernel<T>, params);
}

}  // namespace

void moe_route(Stream& stream, const MoeRoute& op) {
  if (op.logits.dim(0) == 0) return;
  visit_float(op.logits.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, op); });
}

}  // namespace hyb::kernels::cuda
