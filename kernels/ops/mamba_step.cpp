#include "kernels/ops/mamba_step.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/ops/recurrent_step.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels {
namespace {

/// Of all rows, without spans.
Ssd recurrence_of(const MambaStep& op) {
  return {.x = op.convolved,
          .dt = op.dt,
          .a_log = op.a_log,
          .d = op.d,
          .dt_bias = op.dt_bias,
          .state = op.state,
          .span_begin = {},
          .read_slot = op.read_slot,
          .write_slot = op.write_slot,
          .y = op.y,
          .groups = op.groups,
          .dt_min = op.dt_min,
          .dt_max = op.dt_max};
}

/// A card's route calls neither of the parts, so their rules are checked here.
void check(const Check& check, const MambaStep& op) {
  check_shapes(Check("mamba_step: causal_conv"), convolution_of(op));
  check_shapes(check, recurrence_of(op));
  check.table(op.tickets, "tickets", op.x.dim(0));
  check.table(op.read_slot, "read_slot", op.x.dim(0));
  check.table(op.write_slot, "write_slot", op.x.dim(0));
}

}  // namespace

void mamba_step(Queue& queue, const MambaStep& op) {
  const Check rules("mamba_step");
  check(rules, op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::mamba_step(queue.stream(), op);
  }
  SingleTokenSpans spans(rules, op.read_slot, op.write_slot);
  if (spans.count() == 0) return;
  causal_conv(queue, spans.narrowed(convolution_of(op)));
  Ssd recurrence = spans.narrowed(recurrence_of(op));
  recurrence.dt = spans.rows_of(op.dt);
  ssd(queue, recurrence);
}

}  // namespace hyb::kernels
