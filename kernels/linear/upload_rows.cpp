#include "kernels/linear/upload_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/bounce.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

/// Elements first .. first+count-1 of a strip, converted.
void convert(const WeightStrip& strip, DType dtype, std::int64_t first, std::int64_t count,
             std::byte* out) {
  if (strip.dtype == dtype) {
    const auto value_bytes = static_cast<std::int64_t>(size_of(dtype));
    std::memcpy(out, strip.bytes + first * value_bytes,
                static_cast<std::size_t>(count * value_bytes));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    write_value(out, dtype, i, published_value(strip.bytes, strip.dtype, first + i));
  }
}

/// The same of a source.
void convert(const WeightSource& source, DType dtype, std::int64_t first, std::int64_t count,
             std::byte* out) {
  while (count > 0) {
    const WeightStrip& strip = source.strip_of(first / source.columns);
    const std::int64_t begin = first - strip.first * source.columns;
    const std::int64_t here = std::min(count, strip.rows * source.columns - begin);
    convert(strip, dtype, begin, here, out);
    out += here * static_cast<std::int64_t>(size_of(dtype));
    first += here;
    count -= here;
  }
}

}  // namespace

void upload_rows(Queue& queue, const WeightSource& source, DType dtype, std::byte* out) {
  constexpr std::int64_t grain = std::int64_t{64} << 10;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t count = source.experts * source.rows * source.columns;
  if constexpr (has_cuda) {
    cuda::upload_pieces(queue.stream(), out, static_cast<std::size_t>(count * element),
                        [&](std::size_t offset, std::span<std::byte> piece) {
                          const std::int64_t first = static_cast<std::int64_t>(offset) / element;
                          const std::int64_t values = std::ssize(piece) / element;
                          queue.share((values + grain - 1) / grain, 1,
                                      [&](std::int64_t begin, std::int64_t end, int) {
                                        const std::int64_t from = begin * grain;
                                        const std::int64_t to = std::min(values, end * grain);
                                        convert(source, dtype, first + from, to - from,
                                                piece.data() + from * element);
                                      });
                        });
  }
}

}  // namespace hyb::kernels
