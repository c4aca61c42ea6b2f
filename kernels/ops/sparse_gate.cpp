#include "kernels/ops/sparse_gate.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/row_mean.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const SparseGate& op) {
  const Check check("sparse_gate");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
}

template <typename T>
void cut_row(const SparseGate& op, T* x) {
  const std::int64_t width = op.x.dim(1);
  const auto [mean, variance] = moments_of(width, [&](std::int64_t i) { return to_float(x[i]); });
  const float cutoff = mean + op.deviations * std::sqrt(variance);
  for (std::int64_t i = 0; i < width; ++i) {
    const float above = to_float(x[i]) - cutoff;
    x[i] = from_float<T>(above <= 0.0F ? 0.0F : above);
  }
}

}  // namespace

void sparse_gate(Queue& queue, const SparseGate& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::sparse_gate(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) cut_row<T>(op, op.x.row<T>(row));
    });
  });
}

}  // namespace hyb::kernels
