#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Logits within (-cap, cap): x = cap * tanh(x / cap), in place.
///
/// shapes  x [R,V]; rows may be strided
/// types   x: f32   cap: above 0
/// numbers within 2e-6 of cap of the exact answer; NaN stays NaN
struct Cap {
  Tensor x;
  float cap = 0.0F;
};

void cap(Queue& queue, const Cap& op);

}  // namespace hyb::kernels
