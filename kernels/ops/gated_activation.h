#pragma once

#include "kernels/activation.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The activation between the two matrices of a feed-forward.
///
/// shapes  x [T,2I] gated, else [T,I]   y [T,I]; rows may be strided
///         up [T,I], gated: the factors, where they are not the second half of x; x is [T,I] then
/// types   x, up, y: f32 or bf16, the same
/// numbers in f32, rounded once; the fast routes' silu is within 8 ulp of the plain loop's; of
///         gelu_tanh and clamped_swiglu within 8 + 2|e| ulp, e being their exponent; gelu's is
///         within 2^-22 of what it is of, on every route
/// writes  y; y may be up or the first columns of x
struct GatedActivation {
  Tensor x, y;
  Activation activation = {};
  Tensor up = {};
};

void gated_activation(Queue& queue, const GatedActivation& op);

}  // namespace hyb::kernels
