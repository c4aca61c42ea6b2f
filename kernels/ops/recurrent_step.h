#pragma once

#include <cstdint>
#include <limits>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The convolution and the recurrence of a gated delta net for one more token of every sequence;
/// token r is the next one of the sequence in slot read_slot[r]:
///
///   c = causal_conv(x)   y = delta_rule(c, b, a)
///
/// Rows whose write_slot is -1 have no sequence: they come after the others, nothing is read or
/// written for them, and their y may hold anything. Rows are taken in no order, so no row may
/// continue the one before it: chains are for causal_conv and delta_rule.
///
/// shapes  x [R, 2*key_heads*Dk + value_heads*Dv]   b, a [R,value_heads]   y [R, value_heads*Dv];
///         rows may be strided   conv_weight [C,K]   conv_bias [C] or empty   windows [S,C,K-1]
///         with C the columns of x   rate, dt_bias [value_heads]   state [S,value_heads,Dk,Dv]
///         read_slot, write_slot [R], as in delta_rule   convolved [R,C]: room to work in
///         semaphores [R]
/// types   x, b, a, y, windows, convolved: f32 or bf16, the same   state: f32 or bf16
///         weights: f32   tables and semaphores: i32
/// numbers c and y are rounded as the ops they come from round: bit-identical to the two
/// writes  y, the named slots of windows and state, convolved; semaphores are zeros before and
/// after
struct DeltaStep {
  Tensor x, b, a;
  Tensor conv_weight, conv_bias, windows;
  Tensor rate, dt_bias, state;
  Tensor read_slot, write_slot;
  Tensor y, convolved, semaphores;
  std::int64_t key_heads = 1;
  bool tiled = false;
};

void delta_step(Queue& queue, const DeltaStep& op);

/// The convolution and the recurrence of a Mamba-2 mixer for one more token of every sequence;
/// token r is the next one of the sequence in slot read_slot[r]:
///
///   c = causal_conv(x)   y = ssd(c, dt)
///
/// Rows whose write_slot is -1 have no sequence: they come after the others, nothing is read or
/// written for them, and their y may hold anything. Rows are taken in no order, so no row may
/// continue the one before it: chains are for causal_conv and ssd.
///
/// shapes  x [R, heads*P + 2*G*N]   y [R, heads*P]   dt [R,heads]; rows may be strided
///         conv_weight [C,K]   conv_bias [C] or empty   windows [S,C,K-1] with C the columns of x
///         rate, d, dt_bias [heads]   state [S,heads,P,N]   read_slot, write_slot [R], as in ssd
///         convolved [R,C]: room to work in   semaphores [R]
/// types   x, dt, y, windows, convolved: f32 or bf16, the same   state: f32 or bf16
///         weights: f32   tables and semaphores: i32
/// numbers c and y are rounded as the ops they come from round: bit-identical to the two
/// writes  y, the named slots of windows and state, convolved; semaphores are zeros before and
/// after
struct MambaStep {
  Tensor x, dt;
  Tensor conv_weight, conv_bias, windows;
  Tensor rate, d, dt_bias, state;
  Tensor read_slot, write_slot;
  Tensor y, convolved, semaphores;
  std::int64_t groups = 1;
  float dt_min = 0.0F;
  float dt_max = std::numeric_limits<float>::infinity();
};

void mamba_step(Queue& queue, const MambaStep& op);

}  // namespace hyb::kernels
