#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Root-mean-square norm of every row, or of `heads` equal slices of every row (q/k norms).
///
///   n[t,i] = x[t,i] * (mean over the slice of x^2 + eps)^(-1/2) * (one_plus + weight[i mod
///   H/heads])
///   y = n, or with `add` (y + n) * factor
///
/// shapes  x, y [T,H]; rows may be strided   weight [H/heads], or empty: 1   factor [1], or empty:
/// `scale` types   x, y: f32 or bf16, the same   weight, factor: f32 numbers squares summed and
/// scaled in f32; n, the sum, and its product with a factor are each
///         rounded to the type of y
/// writes  y; y may be x itself unless it is added to
struct RmsNorm {
  Tensor x, weight, y;
  float eps = 1e-5F;
  bool one_plus = false;
  std::int64_t heads = 1;
  bool add = false;
  Tensor factor = {};  ///< with `add` alone
  float scale = 1.0F;  ///< with `add` alone
};

void rms_norm(Queue& queue, const RmsNorm& op);

/// Returns what is added to every weight; an empty one counts as zeros then.
inline float weight_offset(const RmsNorm& op) {
  return op.one_plus || op.weight.empty() ? 1.0F : 0.0F;
}

}  // namespace hyb::kernels
