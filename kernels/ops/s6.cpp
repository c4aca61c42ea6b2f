#include "kernels/ops/s6.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/recurrence.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

template <typename T, typename S>
void step(const S6Share<T, S>& job, std::int64_t token, std::int64_t channel, S* state) {
  const T* const b = job.b + token * job.b_stride;
  const T* const c = job.c + token * job.c_stride;
  const float x = to_float(job.x[token * job.x_stride + channel]);
  const float raw = to_float(job.dt[token * job.dt_stride + channel]) + job.dt_bias[channel];
  const float dt = softplus(raw), input = dt * x;
  const float* const rate = job.rate + channel * job.columns;
  float sum = 0.0F;
  for (std::int64_t n = 0; n < job.columns; ++n) {
    const float decay = std::exp(dt * rate[n]);
    state[n] = from_float<S>(decay * to_float(state[n]) + input * to_float(b[n]));
    sum += to_float(state[n]) * to_float(c[n]);
  }
  job.y[token * job.y_stride + channel] = from_float<T>(sum + job.d[channel] * x);
}

template <typename T, typename S>
void run_share(Isa isa, const SelectiveScan& op, const RecurrenceShare<T, S>& common) {
  S6Share<T, S> job{common};
  job.dt = op.dt.as<T>();
  job.b = op.b.as<T>();
  job.c = op.c.as<T>();
  job.d = op.d.as<float>();
  job.dt_stride = op.dt.row_stride;
  job.b_stride = op.b.row_stride;
  job.c_stride = op.c.row_stride;
  job.channels = op.state.dim(1);
  if (run_vectors(isa, job)) return;
  run_heads(job, job.channels, [&](std::int64_t token, std::int64_t channel, S* state) {
    step(job, token, channel, state);
  });
}

void check_shapes(const Check& check, const SelectiveScan& op) {
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.state.rank == 4, "state is [S,C,1,N]", op.state.rank);
  const std::int64_t tokens = op.x.dim(0), channels = op.state.dim(1), columns = op.state.dim(3);
  check.that(columns >= 1 && columns <= s6_columns_max, "N is 1 to 256", columns);
  for (const auto& [tensor, name] : {std::pair(op.x, "x"), {op.dt, "dt"}, {op.y, "y"}}) {
    check.tensor(tensor, name, op.x.dtype, {tokens, channels});
  }
  check.tensor(op.b, "b", op.x.dtype, {tokens, columns});
  check.tensor(op.c, "c", op.x.dtype, {tokens, columns});
  check.tensor(op.rate, "rate", DType::f32, {channels, columns});
  check.tensor(op.d, "d", DType::f32, {channels});
  check.tensor(op.dt_bias, "dt_bias", DType::f32, {channels});
  check.activations(op.state, "state");
  check.tensor(op.state, "state", op.state.dtype, {op.state.dim(0), channels, 1, columns});
}

}  // namespace

void selective_scan(Queue& queue, const SelectiveScan& op) {
  const Check check("selective_scan", queue.device());
  check_shapes(check, op);
  check_tables(check, op);
  if (on_card(queue, [&](auto& stream) { cuda::selective_scan(stream, op); })) return;
  share_recurrence(queue, op, [&](const auto& common) { run_share(queue.isa(), op, common); });
}

}  // namespace hyb::kernels
