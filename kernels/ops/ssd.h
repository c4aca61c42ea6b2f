#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op_shapes.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t ssd_columns_max = 256;  ///< N

/// The Mamba-2 recurrence over ragged spans, token by token, per head h with group g = h*G/heads:
///
///   dt  = clamp(softplus(dt[t,h] + dt_bias[h]), dt_min, dt_max)   softplus(v) = v where v > 20
///   S  <- exp(dt * rate[h]) * S + (dt * x[t,h,:]) (outer) B[t,g,:]
///   y[t,h,:] = S * C[t,g,:] + d[h] * x[t,h,:]
///
/// A row of `x` is [x: heads*P | B: G*N | C: G*N], as causal_conv leaves it. Span r starts from the
/// state in slot read_slot[r] (no_slot: zeros) and leaves its last state in write_slot[r]. Where
/// read_slot[r] is write_slot[r-1], span r continues where span r-1 ends: such spans are a chain.
/// A span whose write_slot is -1 leaves no state; it needs token_by_token and has at most
/// discarded_tokens_max tokens (draft_ring.h).
///
/// shapes  x [T, heads*P + 2*G*N]   dt [T,heads]   rate, d, dt_bias [heads]
///         state [S,heads,P,N], row_stride from slot to slot   y [T, heads*P]
///         span_begin [R+1]   read_slot, write_slot [R]; all slots in write_slot
///         different, and none is read by another span but the next one; rows of x, dt, y may be
///         strided; N is at most 256
/// types   x, dt, y: f32 or bf16, the same   state: f32 or bf16   rate, d, dt_bias: f32
///         tables: i32
/// numbers all in f32; y rounded once. A bf16 state is rounded after every token, before C reads
///         it, not only where a span ends: so where a sequence is cut into spans changes no bit.
/// writes  y and the slots in write_slot, nothing else; y may not alias x
///
/// workspace, for CUDA: u8, 16-byte aligned, of ssd_workspace_bytes. With less of it, or none, a
/// few long spans do not fill a card, and their answers may differ within the route's bounds.
struct MambaScan {
  Tensor x, dt, rate, d, dt_bias, state, span_begin, read_slot, write_slot, y;
  Tensor workspace = {};
  bool token_by_token = false;  ///< a card takes no faster way, whose bits are others
  SsdShape shape = {};
};

void mamba_scan(Queue& queue, const MambaScan& op);

class Check;
/// The rules for shapes and types; the tables aside.
void check_shapes(const Check& check, const MambaScan& op);

/// The most that a call with any number of tokens and spans can use: on the CPU none.
std::size_t ssd_workspace_bytes(Device device, std::int64_t heads, std::int64_t rows,
                                std::int64_t columns);

}  // namespace hyb::kernels
