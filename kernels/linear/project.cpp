#include "kernels/linear/project.h"

#include "kernels/cuda/routes.h"
#include "kernels/linear/linear.h"
#include "kernels/ops/check.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/rms_norm.h"

namespace hyb::kernels {
namespace {

/// Checks what the ops that it calls do not check of their own arguments.
void check(const Project& op) {
  const Check check("project");
  check.that(op.weight != nullptr, "weight is there", 0);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  const std::int64_t rows = op.x.dim(0);
  const std::int64_t inner = op.x.dim(1);
  check.that(op.weight->columns() == inner, "weight has K columns", op.weight->columns());
  if (!op.bias.empty()) check.tensor(op.bias, "bias", DType::f32, {op.weight->rows()});
  if (!op.norm.empty()) {
    check.tensor(op.normed, "normed", op.x.dtype, {rows, inner});
    check.tensor(op.norm.weight, "norm", DType::f32, {inner});
    check.that(!op.keep_normed || op.normed.data != op.x.data, "kept rows are not x", 0);
  }
  if (!op.norm.gate.empty()) {
    check.tensor(op.norm.gate, "gate", op.x.dtype, {rows, inner});
    check.that(op.norm.groups >= 1 && inner % op.norm.groups == 0, "groups divides K",
               op.norm.groups);
  }
  check.that(op.norm.gate.empty() || !op.norm.one_plus, "a gated norm has plain weights", 1);
  check.that(!op.norm.gate.empty() || !op.norm.norm_first, "norm_first is a gated norm's", 1);
  if (!op.activation) {
    check.tensor(op.y, "y", op.y.dtype == DType::f32 ? DType::f32 : op.x.dtype,
                 {rows, op.weight->rows()});
    return;
  }
  check.tensor(op.product, "product", op.x.dtype, {rows, op.weight->rows()});
  check.function(*op.activation);
  check.tensor(op.y, "y", op.x.dtype, {rows, op.weight->rows() / op.activation->inputs()});
  check.that(!op.add && op.scale == 1.0F, "an activation is neither scaled nor added", op.add);
}

}  // namespace

void apply(Queue& queue, const InputNorm& norm, const Tensor& x, const Tensor& y) {
  if (norm.gate.empty()) {
    rms_norm(queue,
             {.x = x, .weight = norm.weight, .y = y, .eps = norm.eps, .one_plus = norm.one_plus});
    return;
  }
  gated_norm(queue, {.x = x,
                     .gate = norm.gate,
                     .weight = norm.weight,
                     .y = y,
                     .eps = norm.eps,
                     .groups = norm.groups,
                     .norm_first = norm.norm_first,
                     .sigmoid_gate = norm.sigmoid_gate});
}

void project(Queue& queue, const Project& op) {
  check(op);
  if (on_card(queue, [&](auto& stream) { cuda::project(stream, op); })) return;
  Tensor x = op.x;
  if (!op.norm.empty()) {
    apply(queue, op.norm, x, op.normed);
    x = op.normed;
  }
  if (!op.activation) {
    linear(queue, {.x = x,
                   .weight = op.weight,
                   .y = op.y,
                   .scale = op.scale,
                   .add = op.add,
                   .bias = op.bias});
    return;
  }
  linear(queue, {.x = x, .weight = op.weight, .y = op.product, .bias = op.bias});
  gated_activation(queue, {.x = op.product, .y = op.y, .activation = *op.activation});
}

}  // namespace hyb::kernels
