#include "kernels/linear/random_rows.h"

#include "core/base/error.h"

namespace hyb::kernels {

Buffer make_rows(Queue& queue, const WeightSource& source) {
  constexpr std::int64_t grain = std::int64_t{1} << 16;
  const std::int64_t row_bytes = source.columns * 2;
  const std::int64_t rows = source.experts * source.rows;
  Buffer made(Device::cpu, static_cast<std::size_t>(rows * row_bytes));
  for (const WeightStrip& strip : source.strips) {
    require(strip.random.has_value(), "weight: all of it is made up, or nothing");
    require(strip.dtype == source.strips.front().dtype, "weight: made-up rows are of one type");
    std::byte* const out = made.data() + strip.first * row_bytes;
    const RandomNumbers numbers = *strip.random;
    queue.share(strip.rows * source.columns, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) write_value(out, numbers.dtype, i, numbers[i]);
    });
  }
  return made;
}

void fill_rows(Queue& queue, const WeightSource& source, DType dtype, std::byte* out) {
  for (const WeightStrip& strip : source.strips) {
    require(strip.random.has_value(), "weight: all of it is made up, or nothing");
    const std::int64_t first = strip.first * source.columns;
    if constexpr (has_cuda) {
      cuda::fill_random(queue.stream(), *strip.random, strip.rows * source.columns, dtype,
                        out + first * static_cast<std::int64_t>(size_of(dtype)));
    }
  }
}

}  // namespace hyb::kernels
