#include "kernels/cuda/routes.h"
#include "kernels/linear/input_rows.h"
#include "kernels/linear/linear.cuh"

namespace hyb::kernels::cuda {
namespace {

/// Says whether the norm goes into the product's own load of x.
bool norm_is_fused(const Stream& stream, const Project& op, const void* weight) {
  return !stream.batch_invariant() && op.weight->order(0).empty() && !op.norm.sigmoid_gate &&
         op.x.dim(0) <= gemv_tokens_max && takes_matrices(op, op.x, weight) &&
         (op.norm.gate.empty() ||
          is_vector_aligned(op.norm.gate.as<bf16>(), op.norm.gate.row_stride)) &&
         (!op.keep_normed || is_vector_aligned(op.normed.as<bf16>(), op.normed.row_stride)) &&
         op.x.dim(1) / op.norm.groups % vector_size<bf16> == 0 &&
         takes_norm(static_cast<int>(op.x.dim(0)), static_cast<int>(op.x.dim(1)),
                    static_cast<int>(op.norm.groups));
}

/// Multiplies by the parts of a weight one after the other, the activation after the last.
void project_parts(Stream& stream, const Project& op) {
  Tensor x = op.x;
  if (!op.norm.empty()) {
    apply(stream, op.norm, op.x, op.normed);
    x = op.normed;
  }
  linear(stream, {.x = x,
                  .weight = op.weight,
                  .y = op.activation ? op.product : op.y,
                  .scale = op.scale,
                  .add = op.add,
                  .bias = op.bias});
  if (op.activation) {
    gated_activation(stream, {.x = op.product, .y = op.y, .activation = *op.activation});
  }
}

}  // namespace

void apply(Stream& stream, const InputNorm& norm, const Tensor& x, const Tensor& y) {
  if (norm.gate.empty()) {
    rms_norm(stream,
             {.x = x, .weight = norm.weight, .y = y, .eps = norm.eps, .one_plus = norm.one_plus});
    return;
  }
  cuda::gated_norm(stream, {.x = x,
                            .gate = norm.gate,
                            .weight = norm.weight,
                            .y = y,
                            .eps = norm.eps,
                            .groups = norm.groups,
                            .norm_first = norm.norm_first,
                            .sigmoid_gate = norm.sigmoid_gate});
}

void project(Stream& stream, const Project& op) {
  if (op.x.dim(0) == 0) return;
  require(op.weight->format() == WeightFormat::rows, "project: CUDA reads weights in rows");
  if (!op.weight->parts().empty()) return project_parts(stream, op);
  const void* const weight = op.weight->expert(0);
  if (op.norm.empty()) return multiply(stream, op, op.x, 0, {});
  if (norm_is_fused(stream, op, weight)) {
    DenseNorm norm = norm_of(op.norm);
    if (op.keep_normed) norm.kept = op.normed.as<bf16>(), norm.kept_stride = op.normed.row_stride;
    return multiply(stream, op, op.x, 0, norm);
  }
  apply(stream, op.norm, op.x, op.normed);
  multiply(stream, op, op.normed, 0, {});
}

}  // namespace hyb::kernels::cuda
