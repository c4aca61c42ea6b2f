#include <fmt/format.h>

#include <array>
#include <cstring>

#include "kernels/linear/coded_panels.h"
#include "kernels/linear/codes.h"
#include "kernels/linear/quantize.h"
#include "kernels/published.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t panel_rows = Weight::panel_rows;
constexpr std::int64_t fp8_group = 128;
constexpr std::int64_t fp8_group_of_rows = 1024;

/// Where a code lies within eight columns.
struct CodePlace {
  std::int64_t byte;
  int shift;
};

CodePlace place_of(WeightCode code, std::int64_t n, std::int64_t k) {
  const std::int64_t pair = k / 2;
  if (code == WeightCode::q4) {
    return {n * 4 + k % 2 * 2 + pair / 2, static_cast<int>(pair % 2) * 4};
  }
  return {n / 16 * 128 + k / 4 * 64 + n % 16 / 4 * 16 + pair % 2 * 8 + n % 4 * 2 + k % 2, 0};
}

/// The rows of a panel; those past the last one are empty.
using Rows = std::array<WeightRow, panel_rows>;

struct Panel {
  const CodedShape& shape;
  Rows rows;
  std::int64_t count;  ///< of rows that are there
  std::byte* out;

  std::byte* group(std::int64_t g) const { return out + g * shape.group_bytes(); }
};

/// Writes the codes of eight columns, [8][64]; vectors of the compiler's for codes of 4 bits.
void put_eight(WeightCode code, const std::uint8_t* codes, std::byte* eight) {
  if (code == WeightCode::q4) {
    std::array<std::uint32_t, panel_rows> words = {};
    for (std::size_t k = 0; k < 8; ++k) {
      for (std::size_t n = 0; n < words.size(); ++n) {
        words[n] |= std::uint32_t{codes[k * words.size() + n]} << (k % 2 * 16 + k / 2 * 4);
      }
    }
    std::memcpy(eight, words.data(), sizeof(words));
    return;
  }
  for (std::int64_t n = 0; n < panel_rows; ++n) {
    for (std::int64_t k = 0; k < 8; ++k) {
      eight[place_of(code, n, k).byte] = static_cast<std::byte>(codes[k * panel_rows + n]);
    }
  }
}

void pack_fp8(const Panel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t first = g * shape.group;
  const std::int64_t columns = columns_of(shape, g);
  std::byte* const scales = panel.group(g);
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
    const float scale = row.scales == nullptr ? 1.0F
                                              : published_value(row.scales, row.scale_dtype,
                                                                first / row.column_block);
    std::memcpy(scales + n * 4, &scale, sizeof(scale));
    std::byte* const eights = scales + shape.scales_bytes();
    for (std::int64_t k = 0; k < columns; ++k) {
      eights[k / 8 * shape.eight_bytes() + place_of(shape.code, n, k % 8).byte] =
          row.bytes[first + k];
    }
  }
}

/// Elements of a group as [32][64] floats, zeros where none are.
void gather(const Panel& panel, std::int64_t first, std::int64_t columns, float* values) {
  std::fill_n(values, quantize_group * panel_rows, 0.0F);
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
    if (row.dtype == DType::bf16) {
      for (std::int64_t k = 0; k < columns; ++k) {
        bf16 value;
        std::memcpy(&value, row.bytes + (first + k) * 2, sizeof(value));
        values[k * panel_rows + n] = to_float(value);
      }
      continue;
    }
    for (std::int64_t k = 0; k < columns; ++k) {
      values[k * panel_rows + n] = published_value(row, first + k);
    }
  }
}

void pack_quantized(const Panel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t columns = columns_of(shape, g);
  alignas(64) std::array<float, quantize_group * panel_rows> values;
  QuantizedGroups groups;
  gather(panel, g * shape.group, columns, values.data());
  quantize(shape.code, values.data(), groups);
  std::byte* const scales = panel.group(g);
  std::memcpy(scales, groups.scales.data(), sizeof(groups.scales));
  std::fill(groups.codes.begin() + columns * panel_rows, groups.codes.end(), zero_code(shape.code));
  for (std::int64_t k = 0; k < columns; k += 8) {
    put_eight(shape.code, groups.codes.data() + k * panel_rows,
              scales + shape.scales_bytes() + k / 8 * shape.eight_bytes());
  }
}

}  // namespace

CodedShape coded_shape(WeightCode code, std::int64_t rows, std::int64_t columns,
                       std::int64_t group) {
  return {code, (rows + panel_rows - 1) / panel_rows, columns, group};
}

CodedShape coded_shape(const Weight& weight) {
  return coded_shape(weight.code(), weight.rows(), weight.columns(), weight.group());
}

std::int64_t group_of(WeightCode code, const WeightSource& source) {
  if (code != WeightCode::fp8) return quantize_group;
  const std::int64_t shared = source.scale_columns();
  if (shared == 0) return fp8_group_of_rows;
  if (shared % fp8_group != 0) {
    throw Error(ErrorKind::model,
                fmt::format("weight: F8_E4M3 with scales of whole rows or of multiples of {} "
                            "columns is read, got {}",
                            fp8_group, shared));
  }
  return fp8_group;
}

void pack_coded_panels(Queue& queue, const WeightSource& source, const CodedShape& shape,
                       std::byte* out) {
  queue.share(source.experts * shape.panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i % shape.panels * panel_rows;
      Panel panel = {.shape = shape,
                     .rows = {},
                     .count = std::min(panel_rows, source.rows - row),
                     .out = out + i * shape.panel_bytes()};
      for (std::int64_t n = 0; n < panel.count; ++n) {
        panel.rows[static_cast<std::size_t>(n)] =
            source.row(i / shape.panels * source.rows + row + n);
      }
      std::memset(panel.out, 0, static_cast<std::size_t>(shape.panel_bytes()));
      for (std::int64_t g = 0; g < shape.groups(); ++g) {
        if (shape.code == WeightCode::fp8) {
          pack_fp8(panel, g);
        } else {
          pack_quantized(panel, g);
        }
      }
    }
  });
}

std::uint8_t code_at(const CodedShape& shape, const std::byte* panel, std::int64_t n,
                     std::int64_t k) {
  const std::byte* const eight = panel + k / shape.group * shape.group_bytes() +
                                 shape.scales_bytes() + k % shape.group / 8 * shape.eight_bytes();
  const CodePlace place = place_of(shape.code, n, k % 8);
  const unsigned bits = static_cast<unsigned>(eight[place.byte]) >> place.shift;
  return static_cast<std::uint8_t>(shape.code == WeightCode::q4 ? bits & 15U : bits);
}

void read_coded_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out) {
  const DType type = shape.code == WeightCode::fp8 ? DType::f32 : DType::bf16;
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    const std::byte* const scales = panel + k / shape.group * shape.group_bytes();
    out[k] = level_of(shape.code, code_at(shape, panel, n, k)) * published_value(scales, type, n);
  }
}

}  // namespace hyb::kernels
