#pragma once

#include <cstdint>
#include <limits>

#include "kernels/queue.h"
#include "kernels/tensor.h"

/// Rings keep what drafts would do to a recurrence until it is known which of them are accepted:
/// the inputs of the recurrence, not its states. A ring tensor is [G,E,W], row_stride from ring to
/// ring; its row n is entry n % E of ring n / E.
namespace hyb::kernels {

/// Most tokens of a span that leaves no state in conv, ssd and delta_rule, since a ring has their
/// inputs: of so few the vector routes have the state in registers alone.
inline constexpr std::int64_t discarded_tokens_max = 16;

/// In ExtendRows::from: zeros.
inline constexpr std::int32_t no_row = std::numeric_limits<std::int32_t>::min();

/// The rows that a recurrence continues with: some are a ring's, the others the step's own.
///
///   y[i,:] = x[from[i],:]                                      from[i] >= 0
///   y[i,:] = ring row -1 - from[i], from ring_column on        no_row < from[i] < 0
///   y[i,:] = 0                                                 from[i] = no_row
///
/// shapes  x [T,C], T may be 0   y [N,C]; rows may be strided   from [N]
///         ring [G,E,W], W at least ring_column + C; or empty: then its numbers are ones
/// types   x, ring, y: f32 or bf16, the same   from: i32
/// numbers copied
/// writes  y, which overlaps neither x nor the ring
struct ExtendRows {
  Tensor x, ring, from, y;
  std::int64_t ring_column = 0;
};

void extend_rows(Queue& queue, const ExtendRows& op);

/// Rows of a matrix become rows of rings.
///
///   ring row to[i], from ring_column on = x[i,:] * gate[i,:]   to[i] >= 0
///
/// shapes  x [T,C]   gate [T,C], or empty: ones; rows of both may be strided   to [T], all
///         different where they are not negative   ring [G,E,W], W at least ring_column + C
/// types   x, gate, ring: f32 or bf16, the same   to: i32
/// numbers without a gate copied; else multiplied in f32 and rounded once, as short_conv does
/// writes  the named rows, which overlap neither x nor gate
struct KeepRows {
  Tensor x, gate, to, ring;
  std::int64_t ring_column = 0;
};

void keep_rows(Queue& queue, const KeepRows& op);

}  // namespace hyb::kernels
