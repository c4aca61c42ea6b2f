#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

enum class Activation : std::uint8_t {
  silu_gated,  ///< y[t,i] = silu(x[t,i]) * x[t,I+i]: the gate's columns first
  relu2,       ///< y[t,i] = max(x[t,i], 0)^2: no gate
};

/// The activation between the two matrices of a feed-forward.
///
/// shapes  x [T,2I] for silu_gated, [T,I] for relu2   y [T,I]; rows may be strided
/// types   x, y: f32 or bf16, the same
/// numbers in f32, rounded once; the fast routes' silu is within 8 ulp of the plain loop's
/// writes  y; y may be the first columns of x
struct GatedActivation {
  Tensor x, y;
  Activation activation = Activation::silu_gated;
};

void gated_activation(Queue& queue, const GatedActivation& op);

}  // namespace hyb::kernels
