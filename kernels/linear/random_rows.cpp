#include "kernels/linear/random_rows.h"

#include <algorithm>

#include "kernels/cuda/stream.h"

namespace hyb::kernels {

bool card_makes(const WeightSource& source, WeightCode code, DType dtype) {
  if (!source.is_random() || dtype == DType::f16) return false;
  return code != WeightCode::bits12 ||
         std::none_of(source.strips.begin(), source.strips.end(), [](const WeightStrip& strip) {
           return strip.dtype == DType::f8_e4m3 || strip.dtype == DType::u8;
         });
}

void fill_rows(Queue& queue, const WeightSource& source, WeightCode code, DType dtype,
               std::byte* out) {
  if constexpr (has_cuda) {
    for (const WeightStrip& strip : source.strips) {
      const RandomNumbers& numbers = strip.random.value();
      if (code == WeightCode::plain) {
        cuda::fill_random(queue.stream(), numbers, strip.rows * source.columns, dtype,
                          out + strip.first * row_bytes_of(dtype, source.columns));
      } else {
        cuda::fill_codes(queue.stream(), {.numbers = numbers,
                                          .code = code,
                                          .rows = source.rows,
                                          .columns = source.columns,
                                          .first = strip.first,
                                          .count = strip.rows,
                                          .out = out});
      }
    }
    queue.stream().wait();  // kernels read weights before the previous ones have ended
  }
}

}  // namespace hyb::kernels
