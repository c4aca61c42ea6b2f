#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The norm after a recurrent mixer, over `groups` equal slices of a row. After a state-space
/// mixer the gate comes first:
///
///   u[t,i] = x[t,i] * silu(gate[t,i])
///   y[t,i] = u[t,i] * (mean over i's slice of u^2 + eps)^(-1/2) * weight[i]
///
/// or, with norm_first, the norm before the gate, as after a gated delta net:
///
///   y[t,i] = x[t,i] * (mean over i's slice of x^2 + eps)^(-1/2) * weight[i] * silu(gate[t,i])
///
/// With sigmoid_gate it is sigmoid(gate[t,i]) in place of the silu; the norm comes first then.
///
/// shapes  x, gate, y [T,H]; rows may be strided   weight [H]
/// types   x, gate, y: f32 or bf16, the same   weight: f32
/// numbers all in f32, rounded once when y is written
/// writes  y; y may be x itself
struct GatedNorm {
  Tensor x, gate, weight, y;
  float eps = 1e-5F;
  std::int64_t groups = 1;
  bool norm_first = false;
  bool sigmoid_gate = false;
};

void gated_norm(Queue& queue, const GatedNorm& op);

}  // namespace hyb::kernels
