#include "kernels/ops/recurrent_step.h"

#include <numeric>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/conv_channels.h"

namespace hyb::kernels {
namespace {

/// Begins of one-token spans for the rows that have a sequence. Rows without a slot come last, and
/// no row continues the one before it: else an error of `check`.
std::vector<std::int32_t> begins_of(const Check& check, const Tensor& read_slot,
                                    const Tensor& write_slot) {
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
  std::vector<std::int32_t> begins(static_cast<std::size_t>(used) + 1);
  std::iota(begins.begin(), begins.end(), 0);
  return begins;
}

void run(Queue& queue, const DeltaRule& op) { delta_rule(queue, op); }
void run(Queue& queue, const MambaScan& op) { mamba_scan(queue, op); }

/// One after the other, for the rows that have a sequence.
template <typename Recurrence>
void run_parts(Queue& queue, const Check& check, const RecurrentStep<Recurrence>& op) {
  Recurrence recurrence = op.recurrence;
  std::vector<std::int32_t> begins = begins_of(check, recurrence.read_slot, recurrence.write_slot);
  const std::int64_t rows = std::ssize(begins) - 1;
  if (rows == 0) return;
  const Tensor span_begin(begins.data(), DType::i32, {rows + 1});
  for (Tensor* tensor :
       {&recurrence.x, &recurrence.y, &recurrence.read_slot, &recurrence.write_slot}) {
    *tensor = tensor->rows(0, rows);
  }
  if constexpr (requires { recurrence.dt; }) {
    recurrence.dt = recurrence.dt.rows(0, rows);
  } else {
    recurrence.b = recurrence.b.rows(0, rows);
    recurrence.a = recurrence.a.rows(0, rows);
  }
  recurrence.span_begin = span_begin;
  causal_conv(queue, {.x = op.convolution.x.rows(0, rows),
                      .weight = op.convolution.weight,
                      .bias = op.convolution.bias,
                      .windows = op.convolution.windows,
                      .span_begin = span_begin,
                      .read_slot = recurrence.read_slot,
                      .write_slot = recurrence.write_slot,
                      .y = recurrence.x});
  run(queue, recurrence);
}

/// The CUDA route calls neither of the two, so their rules are checked here.
template <typename Recurrence>
void check_step(const Check& check, const Check& convolution, const RecurrentStep<Recurrence>& op) {
  const std::int64_t rows = op.convolution.x.dim(0);
  check_shapes(convolution, op.convolution);
  check_shapes(check, op.recurrence);
  check.that(op.recurrence.x.data == op.convolution.y.data, "x is what the convolution writes", 0);
  check.table(op.semaphores, "semaphores", rows);
  check.table(op.recurrence.read_slot, "read_slot", rows);
  check.table(op.recurrence.write_slot, "write_slot", rows);
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
