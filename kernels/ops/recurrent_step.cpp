#include "kernels/ops/recurrent_step.h"

#include <initializer_list>
#include <numeric>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/conv_channels.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels {
namespace {

/// The first rows of a step, those that have a sequence, as spans of one token each.
class SingleTokenSpans {
 public:
  /// Rows without a slot come last, and no row continues the one before it: else an error of
  /// `check`.
  SingleTokenSpans(const Check& check, const Tensor& read_slot, const Tensor& write_slot) {
    const auto* const reads = read_slot.as<std::int32_t>();
    const auto* const slots = write_slot.as<std::int32_t>();
    const std::int64_t rows = write_slot.dim(0);
    std::int64_t used = 0;
    for (; used < rows && slots[used] >= 0; ++used) {
      check.that(used == 0 || reads[used] != slots[used - 1], "no row continues the one before it",
                 reads[used]);
    }
    for (std::int64_t row = used; row < rows; ++row) {
      check.that(slots[row] < 0, "rows without a slot come last", slots[row]);
    }
    begins_.resize(static_cast<std::size_t>(used) + 1);
    std::iota(begins_.begin(), begins_.end(), 0);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(begins_.size()) - 1; }

  CausalConv narrowed(CausalConv op) { return narrow(op, {}); }
  DeltaRule narrowed(DeltaRule op) { return narrow(op, {&op.b, &op.a}); }
  Ssd narrowed(Ssd op) { return narrow(op, {&op.dt}); }

 private:
  /// `others`: what the op reads per token besides x.
  template <typename Op>
  Op narrow(Op& op, std::initializer_list<Tensor*> others) {
    for (Tensor* const tensor : {&op.x, &op.read_slot, &op.write_slot, &op.y}) {
      *tensor = tensor->rows(0, count());
    }
    for (Tensor* const tensor : others) *tensor = tensor->rows(0, count());
    op.span_begin = {begins_.data(), DType::i32, {count() + 1}};
    return op;
  }

  std::vector<std::int32_t> begins_;
};

/// The parts of a step, for all rows, without spans.
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

DeltaRule recurrence_of(const DeltaStep& op) {
  return {.x = op.convolved,
          .b = op.b,
          .a = op.a,
          .rate = op.rate,
          .dt_bias = op.dt_bias,
          .state = op.state,
          .span_begin = {},
          .read_slot = op.read_slot,
          .write_slot = op.write_slot,
          .y = op.y,
          .key_heads = op.key_heads,
          .tiled = op.tiled};
}

Ssd recurrence_of(const MambaStep& op) {
  return {.x = op.convolved,
          .dt = op.dt,
          .rate = op.rate,
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

/// The CUDA route calls neither of the parts, so their rules are checked here.
template <typename Step>
void check_step(const Check& check, const Check& convolution, const Step& op) {
  check_shapes(convolution, convolution_of(op));
  check_shapes(check, recurrence_of(op));
  check.table(op.semaphores, "semaphores", op.x.dim(0));
  check.table(op.read_slot, "read_slot", op.x.dim(0));
  check.table(op.write_slot, "write_slot", op.x.dim(0));
}

void run(Queue& queue, const DeltaRule& op) { delta_rule(queue, op); }
void run(Queue& queue, const Ssd& op) { ssd(queue, op); }

template <typename Step>
void run_parts(Queue& queue, const Check& check, const Step& op) {
  SingleTokenSpans spans(check, op.read_slot, op.write_slot);
  if (spans.count() == 0) return;
  causal_conv(queue, spans.narrowed(convolution_of(op)));
  run(queue, spans.narrowed(recurrence_of(op)));
}

}  // namespace

void delta_step(Queue& queue, const DeltaStep& op) {
  const Check check("delta_step");
  check_step(check, Check("delta_step: causal_conv"), op);
  if (on_card(queue, [&](auto& stream) { cuda::delta_step(stream, op); })) return;
  run_parts(queue, check, op);
}

void mamba_step(Queue& queue, const MambaStep& op) {
  const Check check("mamba_step");
  check_step(check, Check("mamba_step: causal_conv"), op);
  if (on_card(queue, [&](auto& stream) { cuda::mamba_step(stream, op); })) return;
  run_parts(queue, check, op);
}

}  // namespace hyb::kernels
