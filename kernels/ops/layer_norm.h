#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Layer norm of every row, with weights and without biases.
///
///   c[t,i] = x[t,i] - mean of the row
///   y[t,i] = c[t,i] * (mean of c^2 over the row + eps)^(-1/2) * weight[i]
///
/// shapes  x, y [T,H]; rows may be strided   weight [H]
/// types   x, y: f32 or bf16, the same   weight: f32
/// numbers all in f32, y rounded to its type; a row's bits do not depend on other rows
/// writes  y; y may be x itself
struct LayerNorm {
  Tensor x, weight, y;
  float eps = 1e-5F;
};

void layer_norm(Queue& queue, const LayerNorm& op);

}  // namespace hyb::kernels
