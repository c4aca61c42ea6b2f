#include "kernels/ops/delta_step.h"

#include <numeric>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/check.h"
#include "kernels/ops/delta_rule.h"

namespace hyb::kernels {
namespace {

/// What a card's route asks for, which causal_conv and delta_rule do not check of their arguments.
void check(const DeltaStep& op) {
  const Check check("delta_step");
  check.activations(op.x, "x");
  check.that(op.state.rank == 4, "state is [S,value_heads,Dk,Dv]", op.state.rank);
  const std::int64_t rows = op.x.dim(0), heads = op.state.dim(1), width = op.conv_weight.dim(1);
  const std::int64_t key_rows = op.state.dim(2), columns = op.state.dim(3);
  check.that(key_rows >= 1 && key_rows <= delta_rule_columns_max, "Dk is 1 to 256", key_rows);
  check.that(columns >= 1 && columns <= delta_rule_columns_max, "Dv is 1 to 256", columns);
  check.that(op.key_heads >= 1 && heads % op.key_heads == 0, "key_heads divides value_heads",
             op.key_heads);
  const std::int64_t channels = 2 * op.key_heads * key_rows + heads * columns;
  check.tensor(op.x, "x", op.x.dtype, {rows, channels});
  check.that(width >= 2 && width <= 4, "K is 2, 3 or 4", width);
  check.tensor(op.conv_weight, "conv_weight", DType::f32, {channels, width});
  check.tensor(op.windows, "windows", op.x.dtype, {op.windows.dim(0), channels, width - 1});
  check.tensor(op.b, "b", op.x.dtype, {rows, heads});
  check.tensor(op.a, "a", op.x.dtype, {rows, heads});
  check.tensor(op.y, "y", op.x.dtype, {rows, heads * columns});
  check.tensor(op.convolved, "convolved", op.x.dtype, {rows, channels});
  check.table(op.tickets, "tickets", rows);
  check.table(op.read_slot, "read_slot", rows);
  check.table(op.write_slot, "write_slot", rows);
}

/// How many rows have a sequence.
std::int64_t rows_in_use(const DeltaStep& op) {
  const Check check("delta_step");
  const std::int64_t rows = op.x.dim(0);
  const auto* const slots = op.write_slot.as<std::int32_t>();
  std::int64_t used = 0;
  while (used < rows && slots[used] >= 0) ++used;
  for (std::int64_t row = used; row < rows; ++row) {
    check.that(slots[row] < 0, "rows without a slot stand last", slots[row]);
  }
  return used;
}

}  // namespace

void delta_step(Queue& queue, const DeltaStep& op) {
  check(op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::delta_step(queue.stream(), op);
  }
  const std::int64_t rows = rows_in_use(op);
  if (rows == 0) return;
  const Tensor convolved = op.convolved.rows(0, rows);
  const Tensor read_slot = op.read_slot.rows(0, rows), write_slot = op.write_slot.rows(0, rows);
  std::vector<std::int32_t> begins(static_cast<std::size_t>(rows) + 1);
  std::iota(begins.begin(), begins.end(), 0);
  const Tensor span_begin(begins.data(), DType::i32, {rows + 1});
  causal_conv(queue, {.x = op.x.rows(0, rows),
                      .weight = op.conv_weight,
                      .bias = op.conv_bias,
                      .windows = op.windows,
                      .span_begin = span_begin,
                      .read_slot = read_slot,
                      .write_slot = write_slot,
                      .y = convolved});
  delta_rule(queue, {.x = convolved,
                     .b = op.b.rows(0, rows),
                     .a = op.a.rows(0, rows),
                     .a_log = op.a_log,
                     .dt_bias = op.dt_bias,
                     .state = op.state,
                     .span_begin = span_begin,
                     .read_slot = read_slot,
                     .write_slot = write_slot,
                     .y = op.y.rows(0, rows),
                     .key_heads = op.key_heads});
}

}  // namespace hyb::kernels
