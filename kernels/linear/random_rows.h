#pragma once

#include <cstddef>

#include "kernels/buffer.h"
#include "kernels/queue.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// The rows of a made-up source in its type (bf16 or f16), in the machine's memory, by all threads.
Buffer make_rows(Queue& queue, const WeightSource& source);

/// The same as `dtype` (bf16, or f32 of the same numbers), row after row, at `out` on the queue's
/// card, which makes them itself.
void fill_rows(Queue& queue, const WeightSource& source, DType dtype, std::byte* out);

namespace cuda {

/// Numbers 0 .. count-1 as `dtype` (bf16 or f32) at `out`, which is aligned to an element.
void fill_random(Stream& stream, const RandomNumbers& numbers, std::int64_t count, DType dtype,
                 std::byte* out);

}  // namespace cuda
}  // namespace hyb::kernels
