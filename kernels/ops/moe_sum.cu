#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/linear/coded_device.h"
#include "kernels/ops/moe_device.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int block_warps = 8;
constexpr int block_threads = block_warps * warp_size;

template <typename T>
struct Params {
  const T *outputs, *shared_output, *gate_x;
  AnyWeight gate;  ///< without data: no shared_output
  const std::int32_t* place_of;
  const float* weights;
  T* y;
  std::int64_t gate_x_stride, y_stride;
  int width, active;  ///< of y; experts of a token
  float scale;
  bool add;
};

struct Partials {
  SharedArray<float, block_warps> sums;
};

/// sigmoid(gate . row) in all threads. The logit is within (H+12) * 2^-23 * sum_k |gate*row|.
template <typename T>
__device__ __forceinline__ float open_gate(const Params<T>& p, const T* row) {
  auto& partials = shared_object<Partials>().sums;
  const auto thread = static_cast<int>(threadIdx.x);
  float logit = 0.0F;
  for (int i = thread; i < p.width; i += block_threads) {
    logit += to_float(row[i]) * p.gate.at(0, 0, i);
  }
  logit = warp_sum(logit);
  if (thread % warp_size == 0) partials[thread / warp_size] = logit;
  sync_block();
  logit = 0.0F;
  for (int warp = 0; warp < block_warps; ++warp) logit += partials[warp];
  return 1.0F / (1.0F + expf(-logit));
}

/// Block (token, piece) owns 256 vectors of a token's row. Places ascend with the experts, so that
/// their ranks are the order of the sum. Outputs were rounded to the type of y: with that the
/// answer is within 2^-8 (2^-23 for f32) * |scale| * sum_j |weight_j * output_j|, the shared
/// expert's and its gate among them.
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
  const float gate =
      p.gate.data == nullptr ? 0.0F : open_gate(p, p.gate_x + token * p.gate_x_stride);
  sync_block();
  const int column = (static_cast<int>(blockIdx.y) * block_threads + thread) * vector_size<T>;
  const int left = p.width - column;
  if (left <= 0) return;
  float sums[vector_size<T>] = {};
  for (int j = 0; j < p.active; ++j) {
    const std::int64_t row = static_cast<std::int64_t>(places[j]) * p.width;
    float values[vector_size<T>];
    load_values<Aligned>(p.outputs + row + column, left, values);
    for (int i = 0; i < vector_size<T>; ++i) sums[i] += weights[j] * values[i];
  }
  float values[vector_size<T>] = {};
  if (p.gate.data != nullptr) {
    load_values<Aligned>(p.shared_output + token * p.width + column, left, values);
    for (int i = 0; i < vector_size<T>; ++i) sums[i] += gate * values[i];
  }
  T* const y = p.y + token * p.y_stride + column;
  for (float& value : values) value = 0.0F;
  if (p.add) load_values<Aligned>(y, left, values);
  for (int i = 0; i < vector_size<T>; ++i) values[i] += p.scale * sums[i];
  store_values<Aligned>(y, left, values);
}

template <typename T>
void run(Stream& stream, const Params<T>& params, std::int64_t tokens) {
  const bool is_aligned =
      params.width % vector_size<T> == 0 && is_vector_aligned(params.y, params.y_stride);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(tokens),
                         pieces(params.width, block_threads * vector_size<T>)),
          .threads = block_threads,
          .shared_bytes =
              static_cast<std::size_t>(std::max(params.active, 1)) * (sizeof(int) + sizeof(float)),
          .starts_early = true},
         is_aligned ? sum_visits_kernel<T, true> : sum_visits_kernel<T, false>, params);
}

}  // namespace

void sum_visits(Stream& stream, const VisitSum& sum, const MoeRoom& room) {
  visit_float(sum.y.dtype, [&]<typename T>(Tag<T>) {
    const Params<T> params = {.outputs = room.outputs.as<T>(),
                              .shared_output = room.shared_output.as<T>(),
                              .gate_x = sum.gate_x.as<T>(),
                              .gate = sum.gate == nullptr ? AnyWeight{} : any_weight(*sum.gate),
                              .place_of = room.place_of.as<std::int32_t>(),
                              .weights = room.weights.as<float>(),
                              .y = sum.y.as<T>(),
                              .gate_x_stride = sum.gate_x.row_stride,
                              .y_stride = sum.y.row_stride,
                              .width = static_cast<int>(sum.y.dim(1)),
                              .active = static_cast<int>(sum.active),
                              .scale = sum.scale,
                              .add = sum.add};
    run(stream, params, sum.y.dim(0));
  });
}

}  // namespace hyb::kernels::cuda
