#include "kernels/ops/causal_conv.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/visit.h"

namespace hyb::kernels {

void causal_conv(Queue& queue, const CausalConv& op) {
  const Check check("causal_conv", queue.device());
  check_shapes(check, op);
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, op.x.dim(0)),
              op.windows.dim(0));
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::causal_conv(queue.stream(), op);
  }
  visit_float(op.x.dtype,
              [&]<typename T>(Tag<T>) { convolve(queue, channels_of<T>(op), op.x.dim(0)); });
}

}  // namespace hyb::kernels
