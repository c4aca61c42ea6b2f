#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Depthwise causal convolution between two gates, over ragged spans; spans, slots and windows are
/// those of CausalConv.
///
///   x[t] = B, C, z, H channels each          u[t,c] = B[t,c] * z[t,c]
///   y[t,c] = C[t,c] * ( bias[c] + sum_j weight[c,j] * u[t-K+1+j, c] )      j = 0..K-1
///
/// shapes  x [T,3H]   y [T,H]; rows may be strided   weight [H,K]   bias [H] or empty
///         windows [S,H,K-1], the last K-1 values of u, oldest first   tables as in CausalConv
/// types   x, y, windows: f32 or bf16, the same   weight, bias: f32   tables: i32
/// numbers u is rounded to the type of x; summed in f32 from bias upwards in j, rounded to that
///         type, and again when y is written; K is 2, 3 or 4
/// writes  y and the R named slots, nothing else; y may not alias x
struct ShortConv {
  Tensor x, weight, bias, windows, span_begin, read_slot, write_slot, y;
};

void short_conv(Queue& queue, const ShortConv& op);

}  // namespace hyb::kernels
