#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Depthwise causal convolution over ragged spans; the left neighbours live in slots.
///
///   y[t,c] = silu( bias[c] + sum_j weight[c,j] * x[t-K+1+j, c] )      j = 0..K-1
///
/// Span r is tokens span_begin[r] .. span_begin[r+1]-1. What precedes its first token is read
/// from slot read_slot[r] (no_slot: zeros); slot write_slot[r] (often the same) then holds the
/// span's last K-1 *inputs*, oldest first. Where read_slot[r] is write_slot[r-1], span r
/// continues where span r-1 ends: such spans are a chain, and answer as in one call each. A span
/// whose write_slot is -1 leaves no window.
///
/// shapes  x, y [T,C]; rows may be strided   weight [C,K]   bias [C] or empty
///         windows [S,C,K-1], row_stride from slot to slot   span_begin [R+1]
///         read_slot, write_slot [R]; all slots in write_slot different, and none is read by
///         another span but the next one
/// types   x, y, windows: f32 or bf16, the same   weight, bias: f32   tables: i32
/// numbers summed in f32 from bias upwards in j, rounded once when y is written; K is 2, 3 or 4
/// writes  y and the slots in write_slot, nothing else; y may not alias x
struct CausalConv {
  Tensor x, weight, bias, windows, span_begin, read_slot, write_slot, y;
};

void causal_conv(Queue& queue, const CausalConv& op);

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
///         type, and again when y is written; K is 2, 3, 4 or 7
/// writes  y and the slots in write_slot, nothing else; y may not alias x
struct GatedConv {
  Tensor x, weight, bias, windows, span_begin, read_slot, write_slot, y;
};

void gated_conv(Queue& queue, const GatedConv& op);

}  // namespace hyb::kernels
