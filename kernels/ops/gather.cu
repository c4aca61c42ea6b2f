#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/floats.h"
#include "kernels/linear/linear.cuh"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {

/// y[i,:] = x[rows[i],:] * scale, from S to T, rounded once; a row that x has not is NaN in y.
template <typename S, typename T>
struct Gather {
  const S* x;
  const std::int32_t* rows;
  T* y;
  std::int64_t x_rows, x_stride, y_stride;
  int width;
  float scale;
};

inline constexpr int gather_elements = 8;  ///< of a thread
inline constexpr int gather_threads = 128;

template <bool Aligned, typename S>
__device__ __forceinline__ void gather_load(const S* from, int left,
                                            float (&values)[gather_elements]) {
  if constexpr (std::is_same_v<S, f16>) {
    for (int i = 0; i < gather_elements; ++i) {
      values[i] = i < left ? to_float(from[i]) : 0.0F;
    }
  } else {
    load_eight<Aligned>(from, left, values);
  }
}

/// grid (rows, pieces of the width): a thread owns neighbouring elements of one row.
template <typename S, typename T, bool Aligned>
__global__ void __launch_bounds__(gather_threads) gather_kernel(const Gather<S, T> p) {
  const int column = static_cast<int>(blockIdx.y * gather_threads + threadIdx.x) * gather_elements;
  const std::int64_t i = blockIdx.x;
  start_next_and_wait();
  if (column >= p.width) return;
  const std::int64_t row = p.rows[i];
  float values[gather_elements];
  if (row >= 0 && row < p.x_rows) {
    gather_load<Aligned>(p.x + row * p.x_stride + column, p.width - column, values);
    for (float& value : values) value *= p.scale;
  } else {
    for (float& value : values) value = std::numeric_limits<float>::quiet_NaN();
  }
  store_eight<Aligned>(p.y + i * p.y_stride + column, p.width - column, values);
}

template <typename S, typename T>
void gather(Stream& stream, std::int64_t count, const Gather<S, T>& params) {
  if (count == 0 || params.width == 0) return;
  const bool is_aligned = params.width % gather_elements == 0 &&
                          is_vector_aligned(params.x, params.x_stride) &&
                          is_vector_aligned(params.y, params.y_stride);
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(count),
                         pieces(params.width, gather_threads * gather_elements)),
          .threads = gather_threads},
         is_aligned ? gather_kernel<S, T, true> : gather_kernel<S, T, false>, params);
}

namespace {

template <typename S>
void run(Stream& stream, const Embed& op) {
  visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
    gather<S, T>(stream, op.tokens.dim(0),
                 {.x = reinterpret_cast<const S*>(op.weight->expert(0)),
                  .rows = op.tokens.as<std::int32_t>(),
                  .y = op.y.as<T>(),
                  .x_rows = op.weight->rows(),
                  .x_stride = op.weight->columns(),
                  .y_stride = op.y.row_stride,
                  .width = static_cast<int>(op.weight->columns()),
                  .scale = op.scale});
  });
}

template <typename T>
struct CodedRead {
  CodedMatrix weight;
  const std::int32_t *tokens, *order;  ///< no order: null
  T* y;
  std::int64_t y_stride;
  int rows, width;
  float scale;
};

constexpr int coded_threads = 128;

/// grid (tokens, pieces of the width): a thread owns one element.
template <WeightCode Code, typename T>
__global__ void __launch_bounds__(coded_threads) coded_embed_kernel(const CodedRead<T> p) {
  const int k = static_cast<int>(blockIdx.y * coded_threads + threadIdx.x);
  start_next_and_wait();
  if (k >= p.width) return;
  const int token = p.tokens[blockIdx.x];
  float value = std::numeric_limits<float>::quiet_NaN();
  if (token >= 0 && token < p.rows) value = coded_element<Code>(p.weight, token, k) * p.scale;
  p.y[blockIdx.x * p.y_stride + (p.order == nullptr ? k : p.order[k])] = rounded<T>(value);
}

template <WeightCode Code>
void run_code(Stream& stream, const Embed& op) {
  if (op.tokens.dim(0) == 0) return;
  visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
    const CodedRead<T> params = {.weight = coded_matrix(*op.weight, 0),
                                 .tokens = op.tokens.as<std::int32_t>(),
                                 .order = op.weight->order(0).data(),
                                 .y = op.y.as<T>(),
                                 .y_stride = op.y.row_stride,
                                 .rows = static_cast<int>(op.weight->rows()),
                                 .width = static_cast<int>(op.weight->columns()),
                                 .scale = op.scale};
    launch(stream,
           {.blocks =
                dim3(static_cast<unsigned>(op.tokens.dim(0)), pieces(params.width, coded_threads)),
            .threads = coded_threads},
           coded_embed_kernel<Code, T>, params);
  });
}

}  // namespace

void embed(Stream& stream, const Embed& op) {
  require(op.weight->format() == WeightFormat::rows, "embed: weights on the device are rows");
  if (op.weight->code() != WeightCode::plain) {
    return visit_code(op.weight->code(), [&]<WeightCode Code>() { run_code<Code>(stream, op); });
  }
  if (op.weight->dtype() == DType::f16) return run<f16>(stream, op);
  if (op.weight->dtype() == DType::bf16) return run<bf16>(stream, op);
  run<float>(stream, op);
}

void gather_rows(Stream& stream, const GatherRows& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    gather<T, T>(stream, op.rows.dim(0),
                 {.x = op.x.as<T>(),
                  .rows = op.rows.as<std::int32_t>(),
                  .y = op.y.as<T>(),
                  .x_rows = op.x.dim(0),
                  .x_stride = op.x.row_stride,
                  .y_stride = op.y.row_stride,
                  .width = static_cast<int>(op.x.dim(1)),
                  .scale = 1.0F});
  });
}

namespace {

struct Spread {
  const float* x;
  const std::int32_t* from;
  float* y;
  std::int64_t x_stride, y_stride;
  int x_columns, y_columns;
};

constexpr int spread_threads = 256;

/// grid (rows, pieces of the columns of y): a thread owns one element.
__global__ void __launch_bounds__(spread_threads) spread_kernel(const Spread p) {
  const int column = static_cast<int>(blockIdx.y * spread_threads + threadIdx.x);
  const std::int64_t row = blockIdx.x;
  start_next_and_wait();
  if (column >= p.y_columns) return;
  const int from = p.from[column];
  float value = -std::numeric_limits<float>::infinity();
  if (from >= p.x_columns) value = std::numeric_limits<float>::quiet_NaN();
  if (from >= 0 && from < p.x_columns) value = p.x[row * p.x_stride + from];
  p.y[row * p.y_stride + column] = value;
}

}  // namespace

void spread_columns(Stream& stream, const SpreadColumns& op) {
  if (op.y.size() == 0) return;
  const auto columns = static_cast<int>(op.y.dim(1));
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(op.y.dim(0)), pieces(columns, spread_threads)),
          .threads = spread_threads},
         spread_kernel,
         Spread{.x = op.x.as<float>(),
                .from = op.from.as<std::int32_t>(),
                .y = op.y.as<float>(),
                .x_stride = op.x.row_stride,
                .y_stride = op.y.row_stride,
                .x_columns = static_cast<int>(op.x.dim(1)),
                .y_columns = columns});
}

}  // namespace hyb::kernels::cuda
