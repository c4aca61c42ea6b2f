#include "kernels/cuda/activation.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/coded_device.h"
#include "kernels/ops/moe_device.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 4;
constexpr std::int64_t grid_rows_max = 65535;

/// One of the two products: y[place,:] = activation(weight[expert] * row of x).
template <typename T>
struct Params {
  const T* x;
  AnyWeight weight;
  T* y;
  const std::int32_t *visit_of, *chosen;
  std::int64_t x_stride;
  int places, inner, columns, active;
  bool is_activated, is_gated;  ///< with an activation x's rows are tokens, else places
};

template <typename T>
__device__ __forceinline__ float product(const Params<T>& p, const T* x, std::int64_t expert,
                                         std::int64_t row) {
  float sum = 0.0F;
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x) % warp_size; k < p.inner; k += warp_size) {
    sum += to_float(x[k]) * p.weight.at(expert, row, k);
  }
  return warp_sum(sum);
}

/// A warp owns one column of one place. Within (K+4) * 2^-23 * sum_k |x*W| of the exact sum,
/// besides the roundings.
template <typename T>
__global__ void __launch_bounds__(block_warps* warp_size, 8) moe_plain_kernel(const Params<T> p) {
  const int column =
      static_cast<int>(blockIdx.x) * block_warps + static_cast<int>(threadIdx.x) / warp_size;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (column >= p.columns) return;
  for (int place = static_cast<int>(blockIdx.y); place < p.places;
       place += static_cast<int>(gridDim.y)) {
    const std::int32_t visit = p.visit_of[place];
    const T* const x = p.x + (p.is_activated ? visit / p.active : place) * p.x_stride;
    const std::int64_t expert = p.chosen[visit];
    float value = product(p, x, expert, column);
    if (p.is_gated) {
      const float up = product(p, x, expert, std::int64_t{column} + p.columns);
      value = silu_gated(to_float(rounded<T>(value)), to_float(rounded<T>(up)));
    } else if (p.is_activated) {
      value = relu2(to_float(rounded<T>(value)));
    }
    if (threadIdx.x % warp_size == 0) {
      p.y[place * static_cast<std::int64_t>(p.columns) + column] = rounded<T>(value);
    }
  }
}

template <typename T>
void run(Stream& stream, const Params<T>& params) {
  const auto rows = static_cast<unsigned>(std::min<std::int64_t>(params.places, grid_rows_max));
  launch(stream,
         {.blocks = dim3(pieces(params.columns, block_warps), rows),
          .threads = block_warps * warp_size,
          .starts_early = true},
         moe_plain_kernel<T>, params);
}

template <typename T>
void run(Stream& stream, const ExpertProducts& products, const MoeRoom& room) {
  const MoeShape& shape = products.shape;
  const bool is_gated = products.activation == Activation::silu_gated;
  Params<T> params = {.x = products.x.as<T>(),
                      .weight = any_weight(*products.gate_up),
                      .y = room.inner.as<T>(),
                      .visit_of = room.visit_of.as<std::int32_t>(),
                      .chosen = room.chosen.as<std::int32_t>(),
                      .x_stride = products.x.row_stride,
                      .places = static_cast<int>(shape.tokens * shape.active),
                      .inner = static_cast<int>(shape.expert_width()),
                      .columns = static_cast<int>(shape.intermediate),
                      .active = static_cast<int>(shape.active),
                      .is_activated = true,
                      .is_gated = is_gated};
  run(stream, params);
  params.x = room.inner.as<T>();
  params.weight = any_weight(*products.down);
  params.y = room.outputs.as<T>();
  params.x_stride = shape.intermediate;
  params.inner = static_cast<int>(shape.intermediate);
  params.columns = static_cast<int>(shape.expert_width());
  params.is_activated = params.is_gated = false;
  run(stream, params);
}

}  // namespace

void plain_products(Stream& stream, const ExpertProducts& products, const MoeRoom& room) {
  visit_float(products.x.dtype, [&]<typename T>(Tag<T>) { run<T>(stream, products, room); });
}

}  // namespace hyb::kernels::cuda
