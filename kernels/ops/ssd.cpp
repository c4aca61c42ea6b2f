#include "kernels/ops/ssd.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/recurrence.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// The token's step for one head whose state is `state`.
template <typename T, typename S>
void step(const SsdShare<T, S>& job, std::int64_t token, std::int64_t head, S* state) {
  const T* const line = job.x + token * job.x_stride;
  const T* const x = line + head * job.rows;
  const T* const b = line + job.heads * job.rows + head / (job.heads / job.groups) * job.columns;
  const T* const c = b + job.groups * job.columns;
  const float raw = to_float(job.dt[token * job.dt_stride + head]) + job.dt_bias[head];
  const float dt = std::clamp(softplus(raw), job.dt_min, job.dt_max);
  const float decay = std::exp(dt * job.rate[head]);
  T* const y = job.y + token * job.y_stride + head * job.rows;
  for (std::int64_t p = 0; p < job.rows; ++p) {
    S* const row = state + p * job.columns;
    const float input = dt * to_float(x[p]);
    float sum = 0.0F;
    for (std::int64_t n = 0; n < job.columns; ++n) {
      row[n] = from_float<S>(decay * to_float(row[n]) + input * to_float(b[n]));
      sum += to_float(row[n]) * to_float(c[n]);
    }
    y[p] = from_float<T>(sum + job.d[head] * to_float(x[p]));
  }
}

template <typename T, typename S>
void run_share(Isa isa, const SsdShare<T, S>& job) {
  if (run_vectors(isa, job)) return;
  run_heads(job, job.heads, [&](std::int64_t token, std::int64_t head, S* state) {
    step(job, token, head, state);
  });
}

template <typename T, typename S>
SsdShare<T, S> share_of(const MambaScan& op, const RecurrenceShare<T, S>& common) {
  SsdShare<T, S> job{common, op.shape};
  job.dt = op.dt.as<T>();
  job.d = op.d.as<float>();
  job.dt_stride = op.dt.row_stride;
  job.heads = op.state.dim(1);
  return job;
}

}  // namespace

void check_shapes(const Check& check, const MambaScan& op) {
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.state.rank == 4, "state is [S,heads,P,N]", op.state.rank);
  const std::int64_t tokens = op.x.dim(0);
  const std::int64_t slots = op.state.dim(0), heads = op.state.dim(1);
  const std::int64_t inner = heads * op.state.dim(2), columns = op.state.dim(3);
  check.that(columns >= 1 && columns <= ssd_columns_max, "N is 1 to 256", columns);
  check.that(op.shape.groups >= 1 && heads % op.shape.groups == 0, "groups divides heads",
             op.shape.groups);
  check.tensor(op.x, "x", op.x.dtype, {tokens, inner + 2 * op.shape.groups * columns});
  check.tensor(op.dt, "dt", op.x.dtype, {tokens, heads});
  check.tensor(op.rate, "rate", DType::f32, {heads});
  check.tensor(op.d, "d", DType::f32, {heads});
  check.tensor(op.dt_bias, "dt_bias", DType::f32, {heads});
  check.activations(op.state, "state");
  check.tensor(op.state, "state", op.state.dtype, {slots, heads, op.state.dim(2), columns});
  check.tensor(op.y, "y", op.x.dtype, {tokens, inner});
}

void mamba_scan(Queue& queue, const MambaScan& op) {
  const Check check("mamba_scan", queue.device());
  check_shapes(check, op);
  check_tables(check, op);
  if (on_card(queue, [&](auto& stream) { cuda::mamba_scan(stream, op); })) return;
  share_recurrence(queue, op,
                   [&](const auto& common) { run_share(queue.isa(), share_of(op, common)); });
}

std::size_t ssd_workspace_bytes(Device device, std::int64_t heads, std::int64_t rows,
                                std::int64_t columns) {
  if (device == Device::cpu) return 0;
  return ssd_segment_bytes(heads, rows, columns) *
         static_cast<std::size_t>(ssd_segments_max(heads, rows, columns));
}

}  // namespace hyb::kernels
