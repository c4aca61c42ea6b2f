#include "kernels/ops/gated_activation.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/queue.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const GatedActivation& op) {
  const Check check("gated_activation");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  const std::int64_t halves = op.activation == Activation::silu_gated ? 2 : 1;
  check.that(op.x.dim(1) % halves == 0, "x holds gate and up of one width", op.x.dim(1));
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1) / halves});
}

template <typename T>
void gate_row_plain(const T* gate, const T* up, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = to_float(gate[i]);
    y[i] = from_float<T>(g / (1.0F + std::exp(-g)) * to_float(up[i]));
  }
}

template <typename T>
void relu2_row(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = to_float(x[i]);
    const float kept = v > 0.0F || std::isnan(v) ? v : 0.0F;
    y[i] = from_float<T>(kept * kept);
  }
}

template <typename T>
void run_row(Isa isa, Activation activation, const T* x, T* y, std::int64_t count) {
  if (activation == Activation::relu2) return relu2_row(x, y, count);
  if (isa == Isa::avx512) return gate_row<Isa::avx512>(x, x + count, y, count);
  if (isa == Isa::avx2) return gate_row<Isa::avx2>(x, x + count, y, count);
  gate_row_plain(x, x + count, y, count);
}

}  // namespace

void gated_activation(Queue& queue, const GatedActivation& op) {
  check(op);
  if constexpr (has_cuda) {
    if (queue.device() == Device::cuda) return cuda::gated_activation(queue.stream(), op);
  }
  const std::int64_t width = op.y.dim(1);
  // A plain exp costs some twenty times a simple element.
  const std::int64_t weight = queue.isa() == Isa::plain ? 16 : 1;
  share(queue, op.x.dim(0), 1, width * weight, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        run_row<T>(queue.isa(), op.activation, op.x.row<T>(t), op.y.row<T>(t), width);
      }
    });
  });
}

}  // namespace hyb::kernels
