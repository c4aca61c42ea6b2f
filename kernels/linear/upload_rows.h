#pragma once

#include <cstddef>

#include "kernels/queue.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// Writes the source's numbers as `dtype` (bf16 or f32), row after row, to `out` on the queue's
/// card. Reading, converting and copying overlap, piece by piece.
void upload_rows(Queue& queue, const WeightSource& source, DType dtype, std::byte* out);

}  // namespace hyb::kernels
