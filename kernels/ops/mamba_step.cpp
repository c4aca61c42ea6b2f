#include "kernels/ops/mamba_step.h"

#include <numeric>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/check.h"
#include "kernels/ops/ssd.h"

namespace hyb::kernels {
namespace {

/// What causal_conv and ssd do not check of their own arguments.
void check(const MambaStep& op) {
  const Check check("mamba_step");
  check.activations(op.x, "x");
  check.that(op.state.rank == 4, "state is [S,heads,P,N]", op.state.rank);
  const std::int64_t rows = op.x.dim(0), inner = op.state.dim(1) * op.state.dim(2);
  check.tensor(op.y, "y", op.x.dtype, {rows, inner});
  check.tensor(op.convolved, "convolved", op.x.dtype, {rows, op.x.dim(1)});
  check.table(op.tickets, "tickets", rows);
  check.table(op.read_slot, "read_slot", rows);
  check.table(op.write_slot, "write_slot", rows);
}

/// How many rows have a sequence.
std::int64_t rows_in_use(const MambaStep& op) {
  const Check check("mamba_step");
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

void mamba_step(Queue& queue, const MambaStep& op) {
  check(op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::mamba_step(queue.stream(), op);
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
  ssd(queue, {.x = convolved,
              .dt = op.dt.rows(0, rows),
              .a_log = op.a_log,
              .d = op.d,
              .dt_bias = op.dt_bias,
              .state = op.state,
              .span_begin = span_begin,
              .read_slot = read_slot,
              .write_slot = write_slot,
              .y = op.y.rows(0, rows),
              .groups = op.groups,
              .dt_min = op.dt_min,
              .dt_max = op.dt_max});
}

}  // namespace hyb::kernels
