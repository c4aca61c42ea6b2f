#include "kernels/ops/gated_activation.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const GatedActivation& op) {
  const Check check("gated_activation");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.function(op.activation);
  check.that(op.up.empty() || op.activation.gated, "up is of a gated activation", 0);
  const std::int64_t inputs = op.up.empty() ? op.activation.inputs() : 1;
  check.that(op.x.dim(1) % inputs == 0, "x holds gate and up of one width", op.x.dim(1));
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1) / inputs});
  if (!op.up.empty()) check.tensor(op.up, "up", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
}

float activated(const Activation& activation, float value) {
  switch (activation.function) {
    case ActivationFunction::silu:
      return value / (1.0F + std::exp(-value));
    case ActivationFunction::relu2: {
      const float kept = value > 0.0F || std::isnan(value) ? value : 0.0F;
      return kept * kept;
    }
    case ActivationFunction::gelu_tanh:
      return value /
             (1.0F + std::exp(value * (gelu_tanh_linear + gelu_tanh_cubic * value * value)));
    case ActivationFunction::gelu:
      return value / (1.0F + std::exp(gelu_exponent(value)));
    case ActivationFunction::clamped_swiglu: {
      const float kept = value > activation.limit ? activation.limit : value;
      return kept / (1.0F + std::exp(-activation.alpha * kept));
    }
    case ActivationFunction::limited_silu: {
      const float silu = value / (1.0F + std::exp(-value));
      return silu > activation.limit ? activation.limit : silu;
    }
  }
  throw Error(ErrorKind::runtime, "gated_activation: a function that does not exist");
}

/// Returns what a gated activation multiplies with; NaN stays NaN.
float factor_of(const Activation& activation, float up) {
  if (!activation.is_limited()) return up;
  const float kept = std::clamp(up, -activation.limit, activation.limit);
  return activation.function == ActivationFunction::clamped_swiglu ? kept + 1.0F : kept;
}

template <typename T>
void activate_plain(const ActivationRow<T>& row) {
  for (std::int64_t i = 0; i < row.count; ++i) {
    const float value = activated(row.activation, to_float(row.x[i]));
    row.y[i] = from_float<T>(
        row.up == nullptr ? value : value * factor_of(row.activation, to_float(row.up[i])));
  }
}

template <typename T>
void activate(Isa isa, const ActivationRow<T>& row) {
  if (run_vectors(isa, row)) return;
  activate_plain(row);
}

}  // namespace

void gated_activation(Queue& queue, const GatedActivation& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::gated_activation(stream, op); })) return;
  const std::int64_t width = op.y.dim(1);
  // A plain exp costs some twenty times a simple element.
  const std::int64_t weight = queue.isa() == Isa::plain ? 16 : 1;
  share(queue, op.x.dim(0), 1, width * weight, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        const T* const x = op.x.row<T>(t);
        const T* const up = op.up.empty() ? x + width : op.up.row<T>(t);
        activate<T>(queue.isa(), {.activation = op.activation,
                                  .x = x,
                                  .up = op.activation.gated ? up : nullptr,
                                  .y = op.y.row<T>(t),
                                  .count = width});
      }
    });
  });
}

}  // namespace hyb::kernels
