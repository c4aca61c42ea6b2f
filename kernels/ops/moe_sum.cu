#include "kernels/cuda/launch.h"
#include "kernels/ops/moe_device.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_threads = 256;

template <typename T>
struct Params {
  const T* outputs;
  const std::int32_t* place_of;
  const float* weights;
  T* y;
  std::int64_t y_stride;
  int hidden, active;
  float scale;
};

/// Block (token, piece) owns 256 vectors of a token's row. Places ascend with the experts, so that
/// their ranks are the order of the sum. Outputs were rounded to the type of y: with that the
/// answer is within 2^-8 (2^-23 for f32) * |scale| * sum_j |weight_j * output_j|.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(block_threads) sum_visits_kernel(const Params<T> p) {
  int* const places = &dynamic_shared<int>();
  auto* const weights = reinterpret_cast<float*>(places + p.active);
  const std::int64_t token = blockIdx.x;
  const auto thread = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int j = thread; j < p.active; j += block_threads) {
    const std::int32_t place = p.place_of[token * p.active + j];
    int rank = 0;
    for (int i = 0; i < p.active; ++i) rank += p.place_of[token * p.active + i] < place ? 1 : 0;
    places[rank] = place;
    weights[rank] = p.weights[token * p.active + j];
  }
  sync_block();
  const int column = (static_cast<int>(blockIdx.y) * block_threads + thread) * vector_size<T>;
  const int left = p.hidden - column;
  if (left <= 0) return;
  float sums[vector_size<T>] = {};
  for (int j = 0; j < p.active; ++j) {
    const std::int64_t row = static_cast<std::int64_t>(places[j]) * p.hidden;
    float values[vector_size<T>];
    load_values<Aligned>(p.outputs + row + column, left, values);
    for (int i = 0; i < vector_size<T>; ++i) sums[i] += weights[j] * values[i];
  }
  T* const y = p.y + token * p.y_stride + column;
  float values[vector_size<T>];
  load_values<Aligned>(y, left, values);
  for (int i = 0; i < vector_size<T>; ++i) values[i] += p.scale * sums[i];
  store_values<Aligned>(y, left, values);
}

template <typename T>
void run(Stream& stream, const Params<T>& params, std::int64_t tokens) {
  const bool is_aligned =
      params.hidden % vector_size<T> == 0 && is_vector_aligned(params.y, params.y_stride);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tokens),
                         pieces(params.hidden, block_threads * vector_size<T>)),
          .threads = block_threads,
          .shared_bytes = static_cast<std::size_t>(params.active) * (sizeof(int) + sizeof(float)),
          .starts_early = true},
         is_aligned ? sum_visits_kernel<T, true> : sum_visits_kernel<T, false>, params);
}

}  // namespace

void sum_visits(Stream& stream, const MoeShape& shape, const MoeRoom& room, const Tensor& y,
                float scale) {
  visit_float(shape.dtype, [&]<typename T>(Tag<T>) {
    const Params<T> params = {.outputs = room.outputs.as<T>(),
                              .place_of = room.place_of.as<std::int32_t>(),
                              .weights = room.weights.as<float>(),
                              .y = y.as<T>(),
                              .y_stride = y.row_stride,
                              .hidden = static_cast<int>(shape.hidden),
                              .active = static_cast<int>(shape.active),
                              .scale = scale};
    run(stream, params, shape.tokens);
  });
}

}  // namespace hyb::kernels::cuda
