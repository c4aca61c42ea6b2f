#include "kernels/ops/mamba_step.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/ops/causal_conv.h"
#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/ops/ssd.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// What causal_conv and ssd do not check of their own arguments.
void check(const MambaStep& op) {
  const Check check("mamba_step");
  check.activations(op.x, "x");
  check.that(op.state.rank == 4, "state is [S,heads,P,N]", op.state.rank);
  const std::int64_t rows = op.x.dim(0), inner = op.state.dim(1) * op.state.dim(2);
  check.tensor(op.gate, "gate", op.x.dtype, {rows, inner});
  check.tensor(op.y, "y", op.x.dtype, {rows, inner});
  check.that(op.y.data != op.gate.data, "y is not gate", 0);
  check.tensor(op.convolved, "convolved", op.x.dtype, {rows, op.x.dim(1)});
  check.table(op.tickets, "tickets", rows);
}

template <typename T>
void gate_row(const MambaStep& op, std::int64_t row) {
  const T* const gate = op.gate.row<T>(row);
  T* const y = op.y.row<T>(row);
  for (std::int64_t i = 0; i < op.y.dim(1); ++i) {
    const float z = to_float(gate[i]);
    y[i] = from_float<T>(to_float(y[i]) * (z / (1.0F + std::exp(-z))));
  }
}

}  // namespace

void mamba_step(Queue& queue, const MambaStep& op) {
  check(op);
  const std::int64_t rows = op.x.dim(0);
  if (rows == 0) return;
  std::vector<std::int32_t> begins(static_cast<std::size_t>(rows) + 1);
  std::iota(begins.begin(), begins.end(), 0);
  const Tensor span_begin(begins.data(), DType::i32, {rows + 1});
  causal_conv(queue, {.x = op.x,
                      .weight = op.conv_weight,
                      .bias = op.conv_bias,
                      .windows = op.windows,
                      .span_begin = span_begin,
                      .read_slot = op.read_slot,
                      .write_slot = op.write_slot,
                      .y = op.convolved});
  ssd(queue, {.x = op.convolved,
              .dt = op.dt,
              .a_log = op.a_log,
              .d = op.d,
              .dt_bias = op.dt_bias,
              .state = op.state,
              .span_begin = span_begin,
              .read_slot = op.read_slot,
              .write_slot = op.write_slot,
              .y = op.y,
              .groups = op.groups,
              .dt_min = op.dt_min,
              .dt_max = op.dt_max});
  share(queue, rows, 1, op.y.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) gate_row<T>(op, row);
    });
  });
}

}  // namespace hyb::kernels
