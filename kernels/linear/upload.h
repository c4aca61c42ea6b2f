#pragma once

#include <cstddef>
#include <span>

#include "kernels/linear/pack.h"
#include "kernels/queue.h"
#include "kernels/weight.h"

namespace hyb::kernels {

/// Writes the source's numbers as `dtype` (bf16 or f32), row after row, to `out` on the queue's
/// card. Reading, converting and copying overlap, piece by piece.
void upload_rows(Queue& queue, const WeightSource& source, DType dtype, std::byte* out);

/// Makes codes of a source as pack_coded_panels does, with the same numbers, and writes them to
/// `out`, experts * expert_bytes() on the queue's card. Needs twice as much of the machine's memory
/// meanwhile.
void upload_codes(Queue& queue, const WeightSource& source, const CodedRowsShape& shape,
                  std::byte* out);

/// Copies bytes to `out` on the queue's card.
void upload_bytes(Queue& queue, std::span<const std::byte> bytes, std::byte* out);

}  // namespace hyb::kernels
