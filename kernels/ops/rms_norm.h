#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Root-mean-square norm of every row, or of `heads` equal slices of every row (q/k norms).
///
///   y[t,i] = x[t,i] * (mean over the slice of x^2 + eps)^(-1/2) * (one_plus + weight[i mod
///   H/heads])
///
/// shapes  x, y [T,H]; rows may be strided   weight [H/heads]
/// types   x, y: f32 or bf16, the same   weight: f32
/// numbers squares summed and scaled in f32, rounded once when y is written
/// writes  y; y may be x itself
struct RmsNorm {
  Tensor x, weight, y;
  float eps = 1e-5F;
  bool one_plus = false;
  std::int64_t heads = 1;
};

void rms_norm(Queue& queue, const RmsNorm& op);

}  // namespace hyb::kernels
