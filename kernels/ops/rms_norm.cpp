#include "kernels/ops/rms_norm.h"

#include <cmath>

#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const RmsNorm& op) {
  const Check check("rms_norm");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.heads >= 1 && op.x.dim(1) % op.heads == 0, "heads divides H", op.heads);
  check.tensor(op.weight, "weight", DType::f32, {op.x.dim(1) / op.heads});
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
}

template <typename T>
void norm_slice(const RmsNorm& op, const T* x, T* y, std::int64_t width) {
  const float* const weight = op.weight.as<float>();
  float squares = 0.0F;
  for (std::int64_t i = 0; i < width; ++i) squares += to_float(x[i]) * to_float(x[i]);
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(width) + op.eps);
  for (std::int64_t i = 0; i < width; ++i) {
    const float w = op.one_plus ? 1.0F + weight[i] : weight[i];
    y[i] = from_float<T>(to_float(x[i]) * scale * w);
  }
}

}  // namespace

void rms_norm(Queue& queue, const RmsNorm& op) {
  check(op);
  const std::int64_t width = op.x.dim(1) / op.heads;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < op.x.dim(1); i += width) {
          norm_slice<T>(op, op.x.row<T>(t) + i, op.y.row<T>(t) + i, width);
        }
      }
    });
  });
}

}  // namespace hyb::kernels
