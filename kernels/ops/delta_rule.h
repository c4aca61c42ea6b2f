#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op_shapes.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

inline constexpr std::int64_t delta_rule_columns_max = 256;  ///< Dk and Dv

/// The gated delta rule over ragged spans, token by token, per value head h, whose key head is
/// h / (value_heads / key_heads), or tiled h % key_heads; q' and k' are its q and k over their
/// length, q' also times Dk^-0.5:
///
///   q'   = q / sqrt(sum q^2 + 1e-6) / sqrt(Dk)        k' = k / sqrt(sum k^2 + 1e-6)
///   beta = beta_scale * sigmoid(b[t,h])       keep = exp(rate[h] * softplus(a[t,h] + dt_bias[h]))
///   d    = beta * (v - keep * S^T k')
///   S   <- keep * S + k' (outer) d                    softplus(v) = v where v > 20
///   y[t,h,:] = S^T q'
///
/// With per_channel (Kimi delta attention) every row i of a state has a decay of its own, by
/// a[t,h,i] + dt_bias[h,i], so that keep * S is diag(keep) S; with a decay_floor f, below 0,
///
///   keep = exp(f * sigmoid(-rate[h] * (a + dt_bias)))
///
/// A row of `x` is [q: key_heads*Dk | k: key_heads*Dk | v: value_heads*Dv], as causal_conv leaves
/// it. Span r starts from the state in slot read_slot[r] (no_slot: zeros) and leaves its last state
/// in write_slot[r]. Where read_slot[r] is write_slot[r-1], span r continues where span r-1 ends:
/// such spans are a chain. A span whose write_slot is -1 leaves no state; it needs token_by_token
/// and has at most discarded_tokens_max tokens (draft_ring.h).
///
/// shapes  x [T, 2*key_heads*Dk + value_heads*Dv]   b, a [T,value_heads]
///         rate, dt_bias [value_heads], or per_channel a [T,value_heads*Dk] and dt_bias
///         [value_heads*Dk]   state [S,value_heads,Dk,Dv], row_stride from slot to slot
///         y [T, value_heads*Dv]   span_begin [R+1]   read_slot, write_slot [R]; all slots in
///         write_slot different, and none is read by another span but the next one; rows of x, b,
///         a, y may be strided; Dk and Dv are at most 256; key_heads divides value_heads
/// types   x, b, a, y: f32 or bf16, the same   state: f32 or bf16   rate, dt_bias: f32
///         tables: i32
/// numbers all in f32; y rounded once. A bf16 state is rounded after every token, once q' has read
///         it, not only where a span ends: so where a sequence is cut into spans changes no bit.
/// writes  y and the slots in write_slot, nothing else; y may not alias x
///
/// workspace, for CUDA: u8, 16-byte aligned, of delta_rule_workspace_bytes; with less of it, or
/// none, long spans take a slower way.
struct DeltaRule {
  Tensor x, b, a, rate, dt_bias, state, span_begin, read_slot, write_slot, y;
  Tensor workspace = {};
  bool token_by_token = false;  ///< a card takes no faster way, whose bits are others
  DeltaShape shape = {};
};

void delta_rule(Queue& queue, const DeltaRule& op);

class Check;
/// The rules for shapes and types; the tables aside.
void check_shapes(const Check& check, const DeltaRule& op);

/// The most that a call with at most `tokens` tokens and `spans` spans can use, with decays per
/// channel of `channels` rows (0: per head): on the CPU none.
std::size_t delta_rule_workspace_bytes(Device device, std::int64_t tokens, std::int64_t spans,
                                       std::int64_t value_heads, std::int64_t channels = 0);

}  // namespace hyb::kernels
