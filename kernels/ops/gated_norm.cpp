#include "kernels/ops/gated_norm.h"

#include <cmath>

#include "kernels/ops/check.h"
#include "kernels/ops/share.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const GatedNorm& op) {
  const Check check("gated_norm");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.groups >= 1 && op.x.dim(1) % op.groups == 0, "groups divides H", op.groups);
  check.tensor(op.gate, "gate", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
  check.tensor(op.weight, "weight", DType::f32, {op.x.dim(1)});
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
}

template <typename T>
float gated(T x, T gate) {
  const float z = to_float(gate);
  return to_float(x) * (z / (1.0F + std::exp(-z)));
}

template <typename T>
void norm_row(const GatedNorm& op, const T* x, const T* gate, T* y) {
  const std::int64_t width = op.x.dim(1) / op.groups;
  for (std::int64_t begin = 0; begin < op.x.dim(1); begin += width) {
    float squares = 0.0F;
    for (std::int64_t i = begin; i < begin + width; ++i) {
      squares += gated(x[i], gate[i]) * gated(x[i], gate[i]);
    }
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(width) + op.eps);
    for (std::int64_t i = begin; i < begin + width; ++i) {
      y[i] = from_float<T>(gated(x[i], gate[i]) * scale * op.weight.as<float>()[i]);
    }
  }
}

}  // namespace

void gated_norm(Queue& queue, const GatedNorm& op) {
  check(op);
  share(queue, op.x.dim(0), 1, 2 * op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        norm_row<T>(op, op.x.row<T>(t), op.gate.row<T>(t), op.y.row<T>(t));
      }
    });
  });
}

}  // namespace hyb::kernels
