#pragma once

#include <cstddef>

#include "kernels/queue.h"
#include "kernels/weight_code.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// Says whether a card makes these numbers itself: in 12 bits those of one type alone, whose
/// exponents are known; never as f16.
bool card_makes(const WeightSource& source, WeightCode code, DType dtype);

/// Writes a made-up source to `out` on the queue's card, which makes it: plain row after row as
/// `dtype` (bf16 or f32), in codes as CodedRowsShape or Bits12RowsShape, without patches. The
/// numbers, and the codes and scales, are those that the CPU makes of the source.
void fill_rows(Queue& queue, const WeightSource& source, WeightCode code, DType dtype,
               std::byte* out);

namespace cuda {

/// Numbers 0 .. count-1 as `dtype` (bf16 or f32) at `out`, which is aligned to an element.
void fill_random(Stream& stream, const RandomNumbers& numbers, std::int64_t count, DType dtype,
                 std::byte* out);

/// Rows of a weight in codes, whose numbers follow one another.
struct RandomRows {
  RandomNumbers numbers;
  WeightCode code;
  std::int64_t rows, columns;  ///< of an expert
  std::int64_t first, count;   ///< which of all experts' rows
  std::byte* out;              ///< expert 0
};

void fill_codes(Stream& stream, const RandomRows& job);

}  // namespace cuda
}  // namespace hyb::kernels
