#pragma once

#include <cstdint>

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t s6_columns_max = 256;  ///< N

/// The Mamba-1 recurrence (selective scan) over ragged spans, token by token, per channel c:
///
///   dt  = softplus(dt[t,c] + dt_bias[c])                         softplus(v) = v where v > 20
///   S  <- exp(dt * rate[c,:]) * S + dt * x[t,c] * B[t,:]
///   y[t,c] = S . C[t,:] + d[c] * x[t,c]
///
/// Spans, slots, chains and spans that leave no state are those of MambaScan.
///
/// shapes  x, dt, y [T,C]   b, c [T,N]; rows may be strided   rate [C,N]   d, dt_bias [C]
///         state [S,C,1,N], row_stride from slot to slot   tables as in MambaScan   N is at most
///         256
/// types   x, dt, b, c, y: f32 or bf16, the same   state: f32 or bf16   rate, d, dt_bias: f32
/// numbers all in f32; y rounded once; a bf16 state is rounded after every token, before C reads it
/// writes  y and the slots in write_slot, nothing else; y may not alias x, dt, b or c
struct SelectiveScan {
  Tensor x, dt, b, c, rate, d, dt_bias, state, span_begin, read_slot, write_slot, y;
  Tensor workspace = {};        ///< not used
  bool token_by_token = false;  ///< as in MambaScan
};

void selective_scan(Queue& queue, const SelectiveScan& op);

}  // namespace hyb::kernels
