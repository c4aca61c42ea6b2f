#pragma once

#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// Every token gets the row of the token before it; what precedes a span is kept in slots.
///
///   y[t,:] = x[t-1,:]; of a span's first token kept[read_slot,:] (no_slot: zeros)
///   kept[write_slot,:] = x of the span's last token
///
/// Spans, chains and slots are those of CausalConv.
///
/// shapes  x, y [T,C]; rows may be strided   kept [S,C], row_stride from slot to slot
///         span_begin [R+1]   read_slot, write_slot [R], as in CausalConv; a span without tokens
///         writes no slot
/// types   x, y, kept: f32 or bf16, the same   tables: i32
/// numbers copied
/// writes  y and the slots in write_slot, nothing else; y overlaps neither x nor kept
struct ShiftRows {
  Tensor x, kept, span_begin, read_slot, write_slot, y;
};

void shift_rows(Queue& queue, const ShiftRows& op);

}  // namespace hyb::kernels
