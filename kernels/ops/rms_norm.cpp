#include "kernels/ops/rms_norm.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

void check(const RmsNorm& op) {
  const Check check("rms_norm");
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.that(op.heads >= 1 && op.x.dim(1) % op.heads == 0, "heads divides H", op.heads);
  if (!op.weight.empty()) {
    check.tensor(op.weight, "weight", DType::f32, {op.x.dim(1) / op.heads});
  }
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
  check.that(!op.add || op.y.data != op.x.data, "what is added to is not x", 0);
  check.that(op.add || (op.factor.empty() && op.scale == 1.0F), "a factor needs a sum", 0);
  if (!op.factor.empty()) check.tensor(op.factor, "factor", DType::f32, {1});
}

template <typename T>
void norm_slice(const RmsNormRows<T>& job, const T* x, T* y) {
  float squares = 0.0F;
  for (std::int64_t i = 0; i < job.width; ++i) squares += to_float(x[i]) * to_float(x[i]);
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(job.width) + job.eps);
  for (std::int64_t i = 0; i < job.width; ++i) {
    const float weight = job.weight == nullptr ? 0.0F : job.weight[i];
    const T normed = from_float<T>(to_float(x[i]) * scale * (job.weight_offset + weight));
    y[i] = job.add ? from_float<T>(to_float(y[i]) + to_float(normed)) : normed;
    if (job.factor != 1.0F) y[i] = from_float<T>(to_float(y[i]) * job.factor);
  }
}

template <typename T>
void norm_rows(Isa isa, const RmsNormRows<T>& job) {
  if (run_vectors(isa, job)) return;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    for (std::int64_t i = 0; i < job.slices * job.width; i += job.width) {
      norm_slice(job, job.x + row * job.x_stride + i, job.y + row * job.y_stride + i);
    }
  }
}

}  // namespace

void rms_norm(Queue& queue, const RmsNorm& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::rms_norm(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      norm_rows<T>(queue.isa(), {.x = op.x.row<T>(begin),
                                 .y = op.y.row<T>(begin),
                                 .weight = op.weight.as<float>(),
                                 .rows = end - begin,
                                 .x_stride = op.x.row_stride,
                                 .y_stride = op.y.row_stride,
                                 .slices = op.heads,
                                 .width = op.x.dim(1) / op.heads,
                                 .eps = op.eps,
                                 .weight_offset = weight_offset(op),
                                 .add = op.add,
                                 .factor = op.factor.empty() ? op.scale : *op.factor.as<float>()});
    });
  });
}

}  // namespace hyb::kernels
