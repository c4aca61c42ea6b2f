#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Leaves the largest numbers of every row, as many as lie `deviations` standard deviations above
/// the mean in a normal distribution, less that cutoff; the others become zero (Gemma 3n).
///
///   x[t,i] = max(x[t,i] - (mean of the row + deviations * sqrt(mean of (x - mean)^2)), 0)
///
/// shapes  x [T,I]; rows may be strided
/// types   x: f32 or bf16
/// numbers all in f32, rounded once; a row's bits do not depend on other rows. A row with NaN
///         becomes NaN.
/// writes  x
struct SparseGate {
  Tensor x;
  float deviations;
};

void sparse_gate(Queue& queue, const SparseGate& op);

}  // namespace hyb::kernels
