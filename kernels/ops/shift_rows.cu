#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/routes.h"
#include "kernels/cuda/tables.h"
#include "kernels/cuda/vectors.h"
#include "kernels/visit.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int shift_threads = 128;

template <typename T>
struct ShiftParams {
  const T* x;
  T *y, *kept;
  const std::int32_t *span_begin, *read_slot, *write_slot;
  std::int64_t x_stride, y_stride, kept_stride;
  int columns, spans;
};

/// 16 bytes of a row, or what is left of it; zeros for no row.
template <typename T, bool Aligned>
__device__ __forceinline__ void copy_piece(T* to, const T* from, int left) {
  if constexpr (Aligned) {
    if (from != nullptr) return store16(to, load16(from));
  }
  for (int c = 0; c < vector_size<T> && c < left; ++c) {
    to[c] = from == nullptr ? rounded<T>(0.0F) : from[c];
  }
}

/// grid (rows, pieces of the columns): y of a token.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(shift_threads) shift_rows_kernel(const ShiftParams<T> p) {
  const int column = static_cast<int>(blockIdx.y * shift_threads + threadIdx.x) * vector_size<T>;
  const int token = static_cast<int>(blockIdx.x);
  start_next_and_wait();
  const int span = span_of_by_block(p.span_begin, p.spans, token);
  if (column >= p.columns || span >= p.spans) return;
  const SpanEntry entry = span_at(p, span, p.spans);
  const T* row = p.x + (token - 1) * p.x_stride;
  if (token == entry.first && !entry.continues_previous) {
    row = entry.read_slot >= 0 ? p.kept + entry.read_slot * p.kept_stride : nullptr;
  }
  copy_piece<T, Aligned>(p.y + token * p.y_stride + column, row == nullptr ? row : row + column,
                         p.columns - column);
}

/// grid (spans, pieces of the columns), once all spans have read: the last row of a span.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(shift_threads) keep_last_kernel(const ShiftParams<T> p) {
  const int column = static_cast<int>(blockIdx.y * shift_threads + threadIdx.x) * vector_size<T>;
  const int span = static_cast<int>(blockIdx.x);
  start_next_and_wait();
  const int last = p.span_begin[span + 1] - 1, slot = p.write_slot[span];
  if (column >= p.columns || slot < 0 || last < p.span_begin[span]) return;
  copy_piece<T, Aligned>(p.kept + slot * p.kept_stride + column, p.x + last * p.x_stride + column,
                         p.columns - column);
}

}  // namespace

void shift_rows(Stream& stream, const ShiftRows& op) {
  if (op.x.dim(0) == 0) return;
  visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
    const ShiftParams<T> params = {.x = op.x.as<T>(),
                                   .y = op.y.as<T>(),
                                   .kept = op.kept.as<T>(),
                                   .span_begin = op.span_begin.as<std::int32_t>(),
                                   .read_slot = op.read_slot.as<std::int32_t>(),
                                   .write_slot = op.write_slot.as<std::int32_t>(),
                                   .x_stride = op.x.row_stride,
                                   .y_stride = op.y.row_stride,
                                   .kept_stride = op.kept.row_stride,
                                   .columns = static_cast<int>(op.x.dim(1)),
                                   .spans = static_cast<int>(op.read_slot.dim(0))};
    const bool is_aligned = params.columns % vector_size<T> == 0 &&
                            is_vector_aligned(params.x, params.x_stride) &&
                            is_vector_aligned(params.y, params.y_stride) &&
                            is_vector_aligned(params.kept, params.kept_stride);
    const auto run = [&](std::int64_t rows, auto* kernel) {
      launch(stream,
             {.blocks = dim3(static_cast<unsigned>(rows),
                             pieces(params.columns, shift_threads * vector_size<T>)),
              .threads = shift_threads},
             kernel, params);
    };
    run(op.x.dim(0), is_aligned ? shift_rows_kernel<T, true> : shift_rows_kernel<T, false>);
    run(op.read_slot.dim(0), is_aligned ? keep_last_kernel<T, true> : keep_last_kernel<T, false>);
  });
}

}  // namespace hyb::kernels::cuda
