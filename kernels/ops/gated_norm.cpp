#include "kernels/ops/gated_norm.h"

#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/simd/routes.h"
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
  check.that(op.norm_first || !op.sigmoid_gate, "a sigmoid comes after the norm", 1);
  check.tensor(op.y, "y", op.x.dtype, {op.x.dim(0), op.x.dim(1)});
}

template <typename T>
float open(const GatedNormRows<T>& job, T gate) {
  const float z = to_float(gate);
  return (job.sigmoid_gate ? 1.0F : z) / (1.0F + std::exp(-z));
}

/// The columns of one slice.
template <typename T>
void norm_slice(const GatedNormRows<T>& job, const T* x, const T* gate, const float* weight, T* y) {
  const auto before = [&](std::int64_t i) { return job.norm_first ? 1.0F : open(job, gate[i]); };
  const auto after = [&](std::int64_t i) { return job.norm_first ? open(job, gate[i]) : 1.0F; };
  float squares = 0.0F;
  for (std::int64_t i = 0; i < job.width; ++i) {
    const float u = to_float(x[i]) * before(i);
    squares += u * u;
  }
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(job.width) + job.eps);
  for (std::int64_t i = 0; i < job.width; ++i) {
    y[i] = from_float<T>(to_float(x[i]) * before(i) * scale * weight[i] * after(i));
  }
}

template <typename T>
void norm_rows(Isa isa, const GatedNormRows<T>& job) {
  if (run_vectors(isa, job)) return;
  for (std::int64_t row = 0; row < job.rows; ++row) {
    for (std::int64_t i = 0; i < job.slices * job.width; i += job.width) {
      norm_slice(job, job.x + row * job.x_stride + i, job.gate + row * job.gate_stride + i,
                 job.weight + i, job.y + row * job.y_stride + i);
    }
  }
}

}  // namespace

void gated_norm(Queue& queue, const GatedNorm& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::gated_norm(stream, op); })) return;
  share(queue, op.x.dim(0), 1, 4 * op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      norm_rows<T>(queue.isa(), {.x = op.x.row<T>(begin),
                                 .gate = op.gate.row<T>(begin),
                                 .y = op.y.row<T>(begin),
                                 .weight = op.weight.as<float>(),
                                 .rows = end - begin,
                                 .x_stride = op.x.row_stride,
                                 .gate_stride = op.gate.row_stride,
                                 .y_stride = op.y.row_stride,
                                 .slices = op.groups,
                                 .width = op.x.dim(1) / op.groups,
                                 .eps = op.eps,
                                 .norm_first = op.norm_first,
                                 .sigmoid_gate = op.sigmoid_gate});
    });
  });
}

}  // namespace hyb::kernels
