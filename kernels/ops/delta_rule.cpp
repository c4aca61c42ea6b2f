#include "kernels/ops/delta_rule.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/recurrence.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// values / sqrt(sum values^2 + eps) * scale
template <typename T, typename S>
void normalize(const DeltaRuleShare<T, S>& job, const T* values, float scale, float* out) {
  float squares = 0.0F;
  for (std::int64_t i = 0; i < job.rows; ++i) squares += to_float(values[i]) * to_float(values[i]);
  const float factor = 1.0F / std::sqrt(squares + delta_rule_eps) * scale;
  for (std::int64_t i = 0; i < job.rows; ++i) out[i] = to_float(values[i]) * factor;
}

/// Returns what a token leaves of one row of a head's state, or of all of them.
template <typename T, typename S>
float keep_of(const DeltaRuleShare<T, S>& job, std::int64_t token, std::int64_t head,
              std::int64_t row) {
  const float raw = to_float(job.a_of(token, head)[row]) + job.dt_bias_of(head)[row];
  if (job.decay_floor == 0.0F) return std::exp(job.rate[head] * softplus(raw));
  return std::exp(job.decay_floor / (1.0F + std::exp(job.rate[head] * raw)));
}

/// The token's step for one head whose state is `state`.
template <typename T, typename S>
void step(const DeltaRuleShare<T, S>& job, std::int64_t token, std::int64_t head, S* state) {
  float q[delta_rule_columns_max], k[delta_rule_columns_max];
  float read[delta_rule_columns_max] = {}, answer[delta_rule_columns_max] = {};
  const std::int64_t key_head = job.key_head_of(head);
  normalize(job, job.q_of(token, key_head), job.q_scale, q);
  normalize(job, job.k_of(token, key_head), 1.0F, k);
  float keeps[delta_rule_columns_max], read_k[delta_rule_columns_max];
  for (std::int64_t i = 0; i < job.rows; ++i) {
    keeps[i] = i == 0 || job.per_channel ? keep_of(job, token, head, i) : keeps[0];
    read_k[i] = job.per_channel ? keeps[i] * k[i] : k[i];
  }
  const float keep = job.per_channel ? 1.0F : keeps[0];
  const float beta =
      job.beta_scale / (1.0F + std::exp(-to_float(job.b[token * job.b_stride + head])));
  const T* const v = job.v_of(token, head);
  for (std::int64_t i = 0; i < job.rows; ++i) {
    for (std::int64_t j = 0; j < job.columns; ++j) {
      read[j] += to_float(state[i * job.columns + j]) * read_k[i];
    }
  }
  for (std::int64_t i = 0; i < job.rows; ++i) {
    for (std::int64_t j = 0; j < job.columns; ++j) {
      S& cell = state[i * job.columns + j];
      const float change = beta * (to_float(v[j]) - keep * read[j]);
      const float next = keeps[i] * to_float(cell) + k[i] * change;
      cell = from_float<S>(next);
      answer[j] += next * q[i];
    }
  }
  T* const y = job.y + token * job.y_stride + head * job.columns;
  for (std::int64_t j = 0; j < job.columns; ++j) y[j] = from_float<T>(answer[j]);
}

template <typename T, typename S>
void run_share(Isa isa, const DeltaRuleShare<T, S>& job) {
  if (run_vectors(isa, job)) return;
  run_heads(job, job.value_heads, [&](std::int64_t token, std::int64_t head, S* state) {
    step(job, token, head, state);
  });
}

template <typename T, typename S>
DeltaRuleShare<T, S> share_of(const DeltaRule& op, const RecurrenceShare<T, S>& common) {
  DeltaRuleShare<T, S> job{common, op.shape};
  job.b = op.b.as<T>();
  job.a = op.a.as<T>();
  job.b_stride = op.b.row_stride;
  job.a_stride = op.a.row_stride;
  job.value_heads = op.state.dim(1);
  job.q_scale = 1.0F / std::sqrt(static_cast<float>(job.rows));
  return job;
}

}  // namespace

void check_shapes(const Check& check, const DeltaRule& op) {
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.state.rank == 4, "state is [S,value_heads,Dk,Dv]", op.state.rank);
  const std::int64_t tokens = op.x.dim(0), slots = op.state.dim(0), heads = op.state.dim(1);
  const std::int64_t rows = op.state.dim(2), columns = op.state.dim(3);
  check.that(rows >= 1 && rows <= delta_rule_columns_max, "Dk is 1 to 256", rows);
  check.that(columns >= 1 && columns <= delta_rule_columns_max, "Dv is 1 to 256", columns);
  check.that(op.shape.key_heads >= 1 && heads % op.shape.key_heads == 0,
             "key_heads divides value_heads", op.shape.key_heads);
  check.tensor(op.x, "x", op.x.dtype, {tokens, 2 * op.shape.key_heads * rows + heads * columns});
  check.tensor(op.b, "b", op.x.dtype, {tokens, heads});
  const std::int64_t decays = op.shape.per_channel ? heads * rows : heads;
  check.tensor(op.a, "a", op.x.dtype, {tokens, decays});
  check.tensor(op.rate, "rate", DType::f32, {heads});
  check.tensor(op.dt_bias, "dt_bias", DType::f32, {decays});
  check.that(op.shape.decay_floor <= 0.0F && (op.shape.per_channel || op.shape.decay_floor == 0.0F),
             "decay_floor is below 0, per_channel",
             static_cast<std::int64_t>(op.shape.decay_floor));
  check.activations(op.state, "state");
  check.tensor(op.state, "state", op.state.dtype, {slots, heads, rows, columns});
  check.tensor(op.y, "y", op.x.dtype, {tokens, heads * columns});
}

void delta_rule(Queue& queue, const DeltaRule& op) {
  const Check check("delta_rule", queue.device());
  check_shapes(check, op);
  check_tables(check, op);
  if (on_card(queue, [&](auto& stream) { cuda::delta_rule(stream, op); })) return;
  share_recurrence(queue, op,
                   [&](const auto& common) { run_share(queue.isa(), share_of(op, common)); });
}

std::size_t delta_rule_workspace_bytes(Device device, std::int64_t tokens, std::int64_t spans,
                                       std::int64_t value_heads, std::int64_t channels) {
  if (device == Device::cpu) return 0;
  return static_cast<std::size_t>(
      delta_chunk_bytes(delta_chunk_places(tokens, spans), value_heads, channels));
}

}  // namespace hyb::kernels
