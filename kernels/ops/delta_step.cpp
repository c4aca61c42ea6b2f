#include "kernels/ops/delta_step.h"

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/recurrent_step.h"

namespace hyb::kernels {
namespace {

/// Of all rows, without spans.
DeltaRule recurrence_of(const DeltaStep& op) {
  return {.x = op.convolved,
          .b = op.b,
          .a = op.a,
          .a_log = op.a_log,
          .dt_bias = op.dt_bias,
          .state = op.state,
          .span_begin = {},
          .read_slot = op.read_slot,
          .write_slot = op.write_slot,
          .y = op.y,
          .key_heads = op.key_heads};
}

/// A card's route calls neither of the parts, so their rules are checked here.
void check(const Check& check, const DeltaStep& op) {
  check_shapes(Check("delta_step: causal_conv"), convolution_of(op));
  check_shapes(check, recurrence_of(op));
  check.table(op.tickets, "tickets", op.x.dim(0));
  check.table(op.read_slot, "read_slot", op.x.dim(0));
  check.table(op.write_slot, "write_slot", op.x.dim(0));
}

}  // namespace

void delta_step(Queue& queue, const DeltaStep& op) {
  const Check rules("delta_step");
  check(rules, op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::delta_step(queue.stream(), op);
  }
  SingleTokenSpans spans(rules, op.read_slot, op.write_slot);
  if (spans.count() == 0) return;
  causal_conv(queue, spans.narrowed(convolution_of(op)));
  DeltaRule recurrence = spans.narrowed(recurrence_of(op));
  recurrence.b = spans.rows_of(op.b);
  recurrence.a = spans.rows_of(op.a);
  delta_rule(queue, recurrence);
}

}  // namespace hyb::kernels
