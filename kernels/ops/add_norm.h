#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Adds to the residual stream and norms the sum for the block that follows:
///
///   x[t,i] = x[t,i] + scale * added[t,i]        then y = rms_norm(x, weight, eps)
///
/// shapes  x, added, y [T,H]; rows may be strided   weight [H]
/// types   x, added, y: f32 or bf16, the same   weight: f32
/// numbers added in f32 and rounded once when x is written; the norm is that of the rounded x
/// writes  x and y, nothing else; y is neither x nor added
struct AddNorm {
  Tensor x, added, weight, y;
  float scale = 1.0F;
  float eps = 1e-5F;
  bool one_plus = false;  ///< as in RmsNorm
};

void add_norm(Queue& queue, const AddNorm& op);

}  // namespace hyb::kernels
