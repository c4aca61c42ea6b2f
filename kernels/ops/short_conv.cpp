#include "kernels/ops/short_conv.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const ShortConv& op, Device device) {
  const Check check("short_conv", device);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.weight.rank == 2, "weight is a matrix", op.weight.rank);
  const std::int64_t tokens = op.x.dim(0), channels = op.weight.dim(0), width = op.weight.dim(1);
  check.that(width >= 2 && width <= conv_width_max, "K is 2, 3 or 4", width);
  check.tensor(op.x, "x", op.x.dtype, {tokens, 3 * channels});
  check.tensor(op.weight, "weight", DType::f32, {channels, width});
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {channels});
  check.tensor(op.windows, "windows", op.x.dtype, {op.windows.dim(0), channels, width - 1});
  check.tensor(op.y, "y", op.x.dtype, {tokens, channels});
  check.that(op.y.data != op.x.data, "y is not x", 0);
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, tokens), op.windows.dim(0));
}

}  // namespace

void short_conv(Queue& queue, const ShortConv& op) {
  check(op, queue.device());
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::short_conv(queue.stream(), op);
  }
  visit_float(op.x.dtype,
              [&]<typename T>(Tag<T>) { convolve(queue, channels_of<T>(op), op.x.dim(0)); });
}

}  // namespace hyb::kernels
