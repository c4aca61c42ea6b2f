#include "kernels/ops/recurrent_step.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/ssd.h"
#include "kernels/tensor.h"

/// What mamba_step and delta_step do alike before their recurrences. A Step is the struct of
/// either.
namespace hyb::kernels {

/// The first rows of a step, those that have a sequence, as spans of one token each.
class SingleTokenSpans {
 public:
  /// Rows without a slot stand last, and no row goes on where another ends: else an error of
  /// `check`.
  SingleTokenSpans(const Check& check, const Tensor& read_slot, const Tensor& write_slot);

  std::int64_t count() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  Tensor begins() { return {begins_.data(), DType::i32, {count() + 1}}; }
  Tensor rows_of(const Tensor& tensor) const { return tensor.rows(0, count()); }

  /// A part of the step (CausalConv, Ssd, DeltaRule) for these rows; what it reads besides x is
  /// left to the caller.
  template <typename Part>
  Part narrowed(Part part) {
    part.x = rows_of(part.x);
    part.span_begin = begins();
    part.read_slot = rows_of(part.read_slot);
    part.write_slot = rows_of(part.write_slot);
    part.y = rows_of(part.y);
    return part;
  }

 private:
  std::vector<std::int32_t> begins_;
};

/// Of all rows, without spans.
template <typename Step>
CausalConv convolution_of(const Step& op) {
  return {.x = op.x,
          .weight = op.conv_weight,
          .bias = op.conv_bias,
          .windows = op.windows,
          .span_begin = {},
          .read_slot = op.read_slot,
          .write_slot = op.write_slot,
          .y = op.convolved};
}

SingleTokenSpans::SingleTokenSpans(const Check& check, const Tensor& read_slot,
                                   const Tensor& write_slot) {
  const auto* const reads = read_slot.as<std::int32_t>();
  const auto* const slots = write_slot.as<std::int32_t>();
  const std::int64_t rows = write_slot.dim(0);
  std::int64_t used = 0;
  for (; used < rows && slots[used] >= 0; ++used) {
    check.that(used == 0 || reads[used] != slots[used - 1],
               "no row goes on where the one before it ends", reads[used]);
  }
  for (std::int64_t row = used; row < rows; ++row) {
    check.that(slots[row] < 0, "rows without a slot stand last", slots[row]);
  }
  begins_.resize(static_cast<std::size_t>(used) + 1);
  std::iota(begins_.begin(), begins_.end(), 0);
}

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
