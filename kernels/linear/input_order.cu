#include "kernels/linear/input_order.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/floats.h"

namespace hyb::kernels::cuda {
namespace {

constexpr int order_threads = 128;

struct InputOrder {
  const bf16* x;
  const std::int32_t* order;
  bf16* y;
  std::int64_t x_stride;
  int columns;
};

/// grid (rows, pieces of the columns): a thread copies eight numbers to neighbouring columns of a
/// row. The order was there before any work of the stream.
__global__ void __launch_bounds__(order_threads) input_order_kernel(const InputOrder p) {
  const int column = static_cast<int>(blockIdx.y * order_threads + threadIdx.x) * vector_size<bf16>;
  const std::int64_t row = blockIdx.x;
  const bool is_there = column < p.columns;
  const uint4 low = is_there ? load16(p.order + column) : uint4{};
  const uint4 high = is_there ? load16(p.order + column + 4) : uint4{};
  start_next_and_wait();
  if (!is_there) return;
  const bf16* const x = p.x + row * p.x_stride;
  const auto pair = [x](unsigned first, unsigned second) {
    return x[first].bits | static_cast<unsigned>(x[second].bits) << 16;
  };
  store16(p.y + row * p.columns + column,
          {pair(low.x, low.y), pair(low.z, low.w), pair(high.x, high.y), pair(high.z, high.w)});
}

}  // namespace

Tensor in_order(Stream& stream, const Tensor& x, std::span<const std::int32_t> order) {
  if (order.empty()) return x;
  require(x.dtype == DType::bf16, "linear: on a card codes meet bf16 rows");
  const Tensor y = stream.ordered().tensor(0, DType::bf16, {x.dim(0), x.dim(1)});
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(x.dim(0)),
                         pieces(x.dim(1), order_threads * vector_size<bf16>)),
          .threads = order_threads},
         input_order_kernel,
         InputOrder{.x = x.as<bf16>(),
                    .order = order.data(),
                    .y = y.as<bf16>(),
                    .x_stride = x.row_stride,
                    .columns = static_cast<int>(x.dim(1))});
  return y;
}

}  // namespace hyb::kernels::cuda
