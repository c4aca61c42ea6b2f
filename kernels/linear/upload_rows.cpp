#include "kernels/linear/upload_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/bounce.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

/// Elements first .. first+count-1 of a source, converted.
void convert(const WeightSource& source, DType dtype, std::int64_t first, std::int64_t count,
             std::byte* out) {
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  while (count > 0) {
    const WeightRow row = source.row(first / source.columns);
    const std::int64_t begin = first % source.columns;
    const std::int64_t here = std::min(count, source.columns - begin);
    if (row.dtype == dtype) {
      std::memcpy(out, row.bytes + begin * element, static_cast<std::size_t>(here * element));
    } else {
      for (std::int64_t i = 0; i < here; ++i) {
        write_value(out, dtype, i, published_value(row, begin + i));
      }
    }
    out += here * element;
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
