#include "kernels/linear/upload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/staging.h"
#include "kernels/weight_source.h"

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
    if (row.is_stored_as(dtype)) {
      std::memcpy(out, row.bytes + begin * element, static_cast<std::size_t>(here * element));
    } else {
      std::array<float, 256> numbers;
      for (std::int64_t at = 0; at < here; at += std::ssize(numbers)) {
        const std::int64_t some = std::min<std::int64_t>(here - at, std::ssize(numbers));
        read_numbers(row, begin + at, std::span(numbers).first(static_cast<std::size_t>(some)));
        for (std::int64_t i = 0; i < some; ++i) {
          write_value(out, dtype, at + i, numbers[static_cast<std::size_t>(i)]);
        }
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

namespace {

constexpr std::int64_t chunk_columns = CodedRowsShape::chunk_columns;

/// Row n of an expert in panels, as the card has it.
void write_row(const CodedShape& from, const std::byte* expert, std::int64_t n,
               const CodedRowsShape& to, std::byte* codes, std::byte* scales) {
  const std::byte* const panel = expert + n / Weight::panel_rows * from.panel_bytes();
  const std::int64_t row = n % Weight::panel_rows;
  for (std::int64_t k = 0; k < to.chunks() * chunk_columns; ++k) {
    const std::int64_t place =
        k / chunk_columns * chunk_columns + place_in_chunk(k % chunk_columns);
    const unsigned code =
        k < to.columns ? code_at(from, panel, row, k) : unsigned{zero_code(from.code)};
    if (has_nibbles(from.code)) {
      codes[place / 2] |= static_cast<std::byte>(code << (place % 2 * 4));
    } else {
      codes[place] = static_cast<std::byte>(code);
    }
  }
  const std::int64_t columns_of_scale = from.code == WeightCode::fp8 ? chunk_columns : from.group;
  for (std::int64_t k = 0; k < to.columns; k += columns_of_scale) {
    std::memcpy(scales + k / columns_of_scale * from.scale_bytes(),
                panel + k / from.group * from.group_bytes() + row * from.scale_bytes(),
                static_cast<std::size_t>(from.scale_bytes()));
  }
  if (from.code != WeightCode::fp8) return;
  for (std::int64_t chunk = 0; chunk < to.chunks(); ++chunk) {
    const std::byte* const first = codes + chunk * chunk_columns;
    const auto is_nan = [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; };
    if (std::none_of(first, first + chunk_columns, is_nan)) continue;
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(scales + chunk * from.scale_bytes(), &nan, sizeof(nan));
  }
}

}  // namespace

void upload_codes(Queue& queue, const WeightSource& source, const CodedRowsShape& shape,
                  std::byte* out) {
  const CodedShape panels =
      coded_shape(shape.code, shape.rows, shape.columns, group_of(shape.code, source));
  const Buffer packed(Device::cpu,
                      static_cast<std::size_t>(source.experts * panels.expert_bytes()));
  pack_coded_panels(queue, source, panels, packed.data());
  std::vector<std::byte> rows(static_cast<std::size_t>(source.experts * shape.expert_bytes()));
  queue.share(source.experts * shape.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i % shape.rows;
      std::byte* const expert = rows.data() + i / shape.rows * shape.expert_bytes();
      write_row(panels, packed.data() + i / shape.rows * panels.expert_bytes(), n, shape,
                expert + n * shape.row_bytes(),
                expert + shape.codes_bytes() + n * shape.row_scale_bytes());
    }
  });
  upload_bytes(queue, rows, out);
}

void upload_bytes(Queue& queue, std::span<const std::byte> bytes, std::byte* out) {
  if constexpr (has_cuda) {
    cuda::upload_pieces(queue.stream(), out, bytes.size(),
                        [&](std::size_t offset, std::span<std::byte> piece) {
                          std::memcpy(piece.data(), bytes.data() + offset, piece.size());
                        });
  }
}

}  // namespace hyb::kernels
