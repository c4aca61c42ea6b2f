#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/rope_kv_write.h"

namespace hyb::kernels {

/// Does what is between a fused projection and the product after attention, for one more token of
/// every sequence: token r is the only one of span r.
///
///   rope_kv_write(write)   paged_attention(read)
///
/// A span on a card may have no token: such spans come after the others, nothing is written for
/// them. Spans are taken in no order: none may write where another writes, nor continue another
/// ends.
///
/// shapes  as in the two, whose pages, tables and heads are the same; position_of_row is not read:
///         a span's position is that of its only token   read.q: the columns of q in write.qkv
///         read.y may not alias write.qkv
/// numbers bit-identical to the two, whatever the route
/// writes  read.y, the named places of the pages, read.workspace. The columns of q and k may hold
///         either before or after their norms and rotations.
void attention_step(Queue& queue, RopeKvWrite write, const PagedAttention& read);

}  // namespace hyb::kernels
