#include "kernels/ops/layer_norm.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/row_mean.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const LayerNorm& op) {
  const Check check("layer_norm");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.tensor(op.weight, "weight", DType::f32, {op.x.dim(1)});
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
}

template <typename T>
void norm_row(const LayerNorm& op, const T* x, T* y) {
  const std::int64_t width = op.x.dim(1);
  const auto [mean, variance] = moments_of(width, [&](std::int64_t i) { return to_float(x[i]); });
  const float scale = 1.0F / std::sqrt(variance + op.eps);
  for (std::int64_t i = 0; i < width; ++i) {
    y[i] = from_float<T>((to_float(x[i]) - mean) * scale * op.weight.as<float>()[i]);
  }
}

}  // namespace

void layer_norm(Queue& queue, const LayerNorm& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::layer_norm(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) {
        norm_row<T>(op, op.x.row<T>(row), op.y.row<T>(row));
      }
    });
  });
}

}  // namespace hyb::kernels
