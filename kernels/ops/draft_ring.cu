#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int row_threads = 128;

/// A ring tensor's rows, from a column on.
template <typename T>
struct RingRows {
  T* first;
  std::int64_t ring_stride;
  int entries, width;

  __device__ T* row(int n) const {
    return first + n / entries * ring_stride + static_cast<std::int64_t>(n % entries) * width;
  }
};

template <typename T>
RingRows<T> ring_rows_of(const Tensor& ring, std::int64_t column) {
  if (ring.empty()) return {nullptr, 0, 1, 0};
  return {ring.as<T>() + column, ring.row_stride, static_cast<int>(ring.dim(1)),
          static_cast<int>(ring.dim(2))};
}

template <typename T>
bool is_ring_aligned(const RingRows<T>& ring) {
  return is_vector_aligned(ring.first, ring.ring_stride) && ring.width % vector_size<T> == 0;
}

template <typename T>
struct ExtendParams {
  const T* x;
  T* y;
  const std::int32_t* from;
  RingRows<T> ring;
  std::int64_t x_stride, y_stride;
  int columns;
};

/// grid (rows of y, pieces of the columns): a thread copies 16 bytes of a row.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(row_threads) extend_rows_kernel(const ExtendParams<T> p) {
  const int column = static_cast<int>(blockIdx.y * row_threads + threadIdx.x) * vector_size<T>;
  const std::int64_t i = blockIdx.x;
  start_next_and_wait();
  if (column >= p.columns) return;
  const int from = p.from[i];
  T* const y = p.y + i * p.y_stride + column;
  const int left = p.columns - column;
  if (from == no_row || (from < 0 && p.ring.first == nullptr)) {
    const T number = rounded<T>(from == no_row ? 0.0F : 1.0F);
    for (int c = 0; c < vector_size<T> && c < left; ++c) y[c] = number;
    return;
  }
  const T* const row = (from >= 0 ? p.x + from * p.x_stride : p.ring.row(-1 - from)) + column;
  if constexpr (Aligned) {
    store16(y, load16(row));
  } else {
    for (int c = 0; c < vector_size<T> && c < left; ++c) y[c] = row[c];
  }
}

template <typename T>
struct KeepParams {
  const T *x, *gate;  ///< gate null: none
  const std::int32_t* to;
  RingRows<T> ring;
  std::int64_t x_stride, gate_stride;
  int columns;
};

/// grid (rows of x, pieces of the columns): a thread owns 16 bytes of a row.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(row_threads) keep_rows_kernel(const KeepParams<T> p) {
  const int column = static_cast<int>(blockIdx.y * row_threads + threadIdx.x) * vector_size<T>;
  const std::int64_t i = blockIdx.x;
  start_next_and_wait();
  if (column >= p.columns) return;
  const int to = p.to[i];
  if (to < 0) return;
  const T* const x = p.x + i * p.x_stride + column;
  T* const kept = p.ring.row(to) + column;
  const int left = p.columns - column;
  if (p.gate != nullptr) {
    float values[vector_size<T>], gate[vector_size<T>];
    load_values<Aligned>(x, left, values);
    load_values<Aligned>(p.gate + i * p.gate_stride + column, left, gate);
    for (int c = 0; c < vector_size<T>; ++c) values[c] *= gate[c];
    store_values<Aligned>(kept, left, values);
  } else if constexpr (Aligned) {
    store16(kept, load16(x));
  } else {
    for (int c = 0; c < vector_size<T> && c < left; ++c) kept[c] = x[c];
  }
}

/// A launch over all vectors of the columns of some rows.
template <typename T, typename Params>
void launch_rows(Stream& stream, std::int64_t rows, bool is_aligned, void (*aligned)(Params),
                 void (*any)(Params), const Params& params) {
  if (rows == 0 || params.columns == 0) return;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(rows),
                         pieces(params.columns, row_threads * vector_size<T>)),
          .threads = row_threads},
         is_aligned ? aligned : any, params);
}

}  // namespace

void extend_rows(Stream& stream, const ExtendRows& op) {
  visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
    const ExtendParams<T> params = {.x = op.x.as<T>(),
                                    .y = op.y.as<T>(),
                                    .from = op.from.as<std::int32_t>(),
                                    .ring = ring_rows_of<T>(op.ring, op.ring_column),
                                    .x_stride = op.x.row_stride,
                                    .y_stride = op.y.row_stride,
                                    .columns = static_cast<int>(op.y.dim(1))};
    const bool is_aligned =
        params.columns % vector_size<T> == 0 && is_vector_aligned(params.x, params.x_stride) &&
        is_vector_aligned(params.y, params.y_stride) && is_ring_aligned(params.ring);
    launch_rows<T>(stream, op.y.dim(0), is_aligned, extend_rows_kernel<T, true>,
                   extend_rows_kernel<T, false>, params);
  });
}

void keep_rows(Stream& stream, const KeepRows& op) {
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    const KeepParams<T> params = {.x = op.x.as<T>(),
                                  .gate = op.gate.as<T>(),
                                  .to = op.to.as<std::int32_t>(),
                                  .ring = ring_rows_of<T>(op.ring, op.ring_column),
                                  .x_stride = op.x.row_stride,
                                  .gate_stride = op.gate.row_stride,
                                  .columns = static_cast<int>(op.x.dim(1))};
    const bool is_aligned =
        params.columns % vector_size<T> == 0 && is_vector_aligned(params.x, params.x_stride) &&
        is_vector_aligned(params.gate, params.gate_stride) && is_ring_aligned(params.ring);
    launch_rows<T>(stream, op.x.dim(0), is_aligned, keep_rows_kernel<T, true>,
                   keep_rows_kernel<T, false>, params);
  });
}

}  // namespace hyb::kernels::cuda
