#include "kernels/ops/ssd.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t state_columns_max = 256;

void check(const Ssd& op) {
  const Check check("ssd");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.state.rank == 4, "state is [S,heads,P,N]", op.state.rank);
  const std::int64_t tokens = op.x.dim(0);
  const std::int64_t slots = op.state.dim(0), heads = op.state.dim(1);
  const std::int64_t inner = heads * op.state.dim(2), columns = op.state.dim(3);
  check.that(columns >= 1 && columns <= state_columns_max, "N is 1 to 256", columns);
  check.that(op.groups >= 1 && heads % op.groups == 0, "groups divides heads", op.groups);
  check.tensor(op.x, "x", op.x.dtype, {tokens, inner + 2 * op.groups * columns});
  check.tensor(op.dt, "dt", op.x.dtype, {tokens, heads});
  check.tensor(op.a_log, "a_log", DType::f32, {heads});
  check.tensor(op.d, "d", DType::f32, {heads});
  check.tensor(op.dt_bias, "dt_bias", DType::f32, {heads});
  check.tensor(op.state, "state", DType::f32, {slots, heads, op.state.dim(2), columns});
  check.tensor(op.y, "y", op.x.dtype, {tokens, inner});
  check.slots(op.read_slot, op.write_slot, check.spans(op.span_begin, tokens), slots);
}

float softplus(float value) { return value > 20.0F ? value : std::log1p(std::exp(value)); }

/// The token's step for one head whose state is `state`.
template <typename T>
void step(const Ssd& op, std::int64_t token, std::int64_t head, float* state) {
  const std::int64_t heads = op.state.dim(1), rows = op.state.dim(2), columns = op.state.dim(3);
  const T* const line = op.x.row<T>(token);
  const T* const x = line + head * rows;
  const T* const b = line + heads * rows + head * op.groups / heads * columns;
  const T* const c = b + op.groups * columns;
  const float raw = to_float(op.dt.row<T>(token)[head]) + op.dt_bias.as<float>()[head];
  const float dt = std::clamp(softplus(raw), op.dt_min, op.dt_max);
  const float decay = std::exp(dt * -std::exp(op.a_log.as<float>()[head]));
  for (std::int64_t p = 0; p < rows; ++p) {
    float* const row = state + p * columns;
    const float input = dt * to_float(x[p]);
    float sum = 0.0F;
    for (std::int64_t n = 0; n < columns; ++n) {
      row[n] = decay * row[n] + input * to_float(b[n]);
      sum += row[n] * to_float(c[n]);
    }
    op.y.row<T>(token)[head * rows + p] =
        from_float<T>(sum + op.d.as<float>()[head] * to_float(x[p]));
  }
}

template <typename T>
void run_head(const Ssd& op, std::int64_t span, std::int64_t head) {
  const std::int64_t size = op.state.dim(2) * op.state.dim(3);
  const std::int32_t from = op.read_slot.as<std::int32_t>()[span];
  const std::int32_t to = op.write_slot.as<std::int32_t>()[span];
  float* const state = op.state.row<float>(to) + head * size;
  const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(float);
  if (from < 0) {
    std::memset(state, 0, bytes);
  } else if (from != to) {
    std::memcpy(state, op.state.row<float>(from) + head * size, bytes);
  }
  const auto* const begin = op.span_begin.as<std::int32_t>() + span;
  for (std::int64_t token = begin[0]; token < begin[1]; ++token) step<T>(op, token, head, state);
}

}  // namespace

void ssd(Queue& queue, const Ssd& op) {
  check(op);
  if (op.x.dim(0) == 0) return;
  const std::int64_t spans = op.read_slot.dim(0), heads = op.state.dim(1);
  const std::int64_t elements = op.x.dim(0) * op.state.dim(2) * op.state.dim(3) / spans;
  share(queue, spans * heads, 1, elements, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t i = begin; i < end; ++i) run_head<T>(op, i / heads, i % heads);
    });
  });
}

}  // namespace hyb::kernels
