#include "kernels/linear/pack.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "kernels/linear/codes.h"
#include "kernels/linear/eight_codes.h"
#include "kernels/linear/gguf_panels.h"
#include "kernels/linear/quantize.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t panel_rows = Weight::panel_rows;
/// 64 words of 64 rows: 16 KB of source and 16 KB of panel stay in the first-level cache, and every
/// row gives whole cache lines.
constexpr std::int64_t tile_words = 64;
using Tile = std::array<std::uint32_t, panel_rows * tile_words>;

using RowPointers = std::array<const std::byte*, panel_rows>;

struct Panel {
  std::array<WeightRow, panel_rows> rows = {};
  std::int64_t count;    ///< of rows, 1 to 64
  std::int64_t columns;  ///< of a row
  DType to;

  /// Says whether the rows are what the panel holds, but for their order.
  bool is_copy() const {
    return count == panel_rows &&
           std::all_of(rows.begin(), rows.end(),
                       [this](const WeightRow& row) { return row.is_stored_as(to); });
  }
  RowPointers bytes() const {
    RowPointers pointers;
    for (std::size_t r = 0; r < pointers.size(); ++r) pointers[r] = rows[r].bytes;
    return pointers;
  }
};

/// rows[r][first_byte / 4 + j] -> out[j][r] for 64 rows of words.
void transpose(const RowPointers& rows, std::int64_t first_byte, std::byte* out) {
  for (std::int64_t j = 0; j < tile_words; j += 4) {
    for (std::int64_t r = 0; r < panel_rows; r += 4) {
      __m128 row[4];
      for (int i = 0; i < 4; ++i) {
        const std::byte* const from = rows[static_cast<std::size_t>(r + i)] + first_byte + j * 4;
        row[i] = _mm_loadu_ps(reinterpret_cast<const float*>(from));
        _mm_prefetch(reinterpret_cast<const char*>(from + tile_words * 4), _MM_HINT_T0);
      }
      _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
      float* const to = reinterpret_cast<float*>(out) + j * panel_rows + r;
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(to + i * panel_rows, row[i]);
    }
  }
}

/// The general case of any type and any edge: the words of rows and columns that do not exist are
/// 0.
void convert(const Panel& panel, std::int64_t first_word, Tile& tile) {
  const std::int64_t per_word = 4 / static_cast<std::int64_t>(size_of(panel.to));
  const std::int64_t first = first_word * per_word;
  const std::int64_t columns = std::min(panel.columns - first, tile_words * per_word);
  tile.fill(0);
  for (std::int64_t r = 0; r < panel.count; ++r) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(r)];
    std::byte* const words =
        reinterpret_cast<std::byte*>(&tile[static_cast<std::size_t>(r * tile_words)]);
    std::array<float, tile_words * 2> numbers;
    read_numbers(row, first, std::span(numbers).first(static_cast<std::size_t>(columns)));
    for (std::int64_t i = 0; i < columns; ++i) {
      write_value(words, panel.to, i, numbers[static_cast<std::size_t>(i)]);
    }
  }
}

void transpose(const Tile& tile, std::byte* out) {
  RowPointers rows;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r] = reinterpret_cast<const std::byte*>(&tile[r * tile_words]);
  }
  transpose(rows, 0, out);
}

/// Words of 64 rows, each with two columns, to the rows' first columns and then their second ones.
void split_pairs(std::int64_t words, std::byte* out) {
  constexpr int vectors = panel_rows / 4;
  for (std::int64_t word = 0; word < words; ++word) {
    auto* const line = reinterpret_cast<__m128i*>(out + word * PanelShape::line_bytes);
    __m128i pairs[vectors];
    for (int i = 0; i < vectors; ++i) pairs[i] = _mm_loadu_si128(line + i);
    for (int i = 0; i < vectors; i += 2) {  // sign-extended, so that saturation changes nothing
      const __m128i low = _mm_srai_epi32(_mm_slli_epi32(pairs[i], 16), 16);
      const __m128i next_low = _mm_srai_epi32(_mm_slli_epi32(pairs[i + 1], 16), 16);
      const __m128i high = _mm_srai_epi32(pairs[i], 16);
      const __m128i next_high = _mm_srai_epi32(pairs[i + 1], 16);
      _mm_storeu_si128(line + i / 2, _mm_packs_epi32(low, next_low));
      _mm_storeu_si128(line + vectors / 2 + i / 2, _mm_packs_epi32(high, next_high));
    }
  }
}

void pack_panel(const Panel& panel, std::int64_t words, std::byte* out) {
  const std::int64_t row_bytes = panel.columns * static_cast<std::int64_t>(size_of(panel.to));
  const bool is_copy = panel.is_copy();
  const RowPointers rows = panel.bytes();
  for (std::int64_t word = 0; word < words; word += tile_words) {
    std::byte* const to = out + word * panel_rows * 4;
    if (is_copy && (word + tile_words) * 4 <= row_bytes) {
      transpose(rows, word * 4, to);
      continue;
    }
    Tile tile;
    convert(panel, word, tile);
    if (word + tile_words <= words) {
      transpose(tile, to);
      continue;
    }
    Tile turned;
    transpose(tile, reinterpret_cast<std::byte*>(turned.data()));
    std::memcpy(to, turned.data(), static_cast<std::size_t>((words - word) * panel_rows * 4));
  }
  if (panel.to == DType::f16) split_pairs(words, out);
}

/// Rows first .. first+count-1 of all experts' rows.
Panel panel_of(const WeightSource& source, std::int64_t first, std::int64_t count, DType to) {
  Panel panel = {.count = count, .columns = source.columns, .to = to};
  for (std::int64_t r = 0; r < count; ++r) {
    panel.rows[static_cast<std::size_t>(r)] = source.row(first + r);
  }
  return panel;
}

}  // namespace

void pack_panel_of(const WeightSource& source, DType dtype, std::int64_t panel, std::byte* out) {
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  const std::int64_t row = panel % shape.panels * panel_rows;
  const std::int64_t first = panel / shape.panels * source.rows + row;
  const std::int64_t count = std::min(panel_rows, source.rows - row);
  pack_panel(panel_of(source, first, count, dtype), shape.lines, out);
}

void pack_panels(Queue& queue, const WeightSource& source, DType dtype, std::byte* out) {
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  queue.share(source.experts * shape.panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      pack_panel_of(source, dtype, i, out + i * shape.panel_bytes());
    }
  });
}

namespace {

constexpr std::int64_t fp8_group = CodedRowsShape::chunk_columns;
constexpr std::int64_t fp8_group_of_rows = 1024;

/// The rows of a panel; those past the last one are empty.
using PanelRows = std::array<WeightRow, panel_rows>;

struct CodedPanel {
  const CodedShape& shape;
  PanelRows rows;
  std::int64_t count;  ///< of rows that are there
  std::byte* out;
  std::span<const std::int32_t> order;  ///< of columns in groups; empty: as they are

  std::byte* group(std::int64_t g) const {
    return out + shape.groups_offset() + g * shape.group_bytes();
  }
};

/// Writes the codes of eight columns, [8][64], of 4 or 8 bits; vectors of the compiler's for 4.
void put_eight(std::int64_t bits, const std::uint8_t* codes, std::byte* eight) {
  if (bits == 4) {
    std::array<std::uint32_t, panel_rows> words = {};
    for (std::size_t k = 0; k < 8; ++k) {
      for (std::size_t n = 0; n < words.size(); ++n) {
        words[n] |= std::uint32_t{codes[k * words.size() + n] & 15U} << (k % 2 * 16 + k / 2 * 4);
      }
    }
    std::memcpy(eight, words.data(), sizeof(words));
    return;
  }
  for (std::int64_t n = 0; n < panel_rows; ++n) {
    for (std::int64_t k = 0; k < 8; ++k) {
      eight[place_of(bits, n, k).byte] = static_cast<std::byte>(codes[k * panel_rows + n]);
    }
  }
}

/// Writes the codes of a group, [columns][64], of which the last eight are filled up.
void put_group(const CodedPanel& panel, std::int64_t g, const std::uint8_t* codes) {
  const CodedShape& shape = panel.shape;
  std::byte* const eights = panel.group(g) + shape.scales_bytes();
  for (std::int64_t k = 0; k < columns_of(shape, g); k += 8) {
    put_eight(shape.bits, codes + k * panel_rows, eights + k / 8 * shape.eight_bytes());
  }
}

void pack_fp8(const CodedPanel& panel, std::int64_t g) {
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
    for (std::int64_t k = 0; k < columns; k += 8) {
      const EightCodes codes =
          bytes_of(row.bytes, first + k, std::min<std::int64_t>(8, columns - k));
      put_codes<8>({&codes}, n, scales + shape.scales_bytes() + k / 8 * shape.eight_bytes());
    }
  }
}

/// Elements of a group as [32][64] floats, zeros where none are.
void gather(const CodedPanel& panel, std::int64_t first, std::int64_t columns, float* values) {
  std::fill_n(values, quantize_group * panel_rows, 0.0F);
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
    if (row.is_stored_as(DType::bf16)) {
      for (std::int64_t k = 0; k < columns; ++k) {
        bf16 value;
        std::memcpy(&value, row.bytes + (first + k) * 2, sizeof(value));
        values[k * panel_rows + n] = to_float(value);
      }
      continue;
    }
    std::array<float, quantize_group> numbers;
    read_numbers(row, first, std::span(numbers).first(static_cast<std::size_t>(columns)));
    for (std::int64_t k = 0; k < columns; ++k) {
      values[k * panel_rows + n] = numbers[static_cast<std::size_t>(k)];
    }
  }
}

/// Published codes and scales as they are.
void pack_mxfp4(const CodedPanel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t first = g * shape.group, columns = columns_of(shape, g);
  std::byte* const scales = panel.group(g);
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
    scales[n] = row.scales[g];
    for (std::int64_t k = 0; k < columns; k += 8) {
      const EightCodes codes = nibbles_of(row.bytes, first + k);
      put_codes<4>({&codes}, n, scales + shape.scales_bytes() + k / 8 * shape.eight_bytes());
    }
  }
}

/// Codes and scales of numbers that are made up.
void pack_random(const CodedPanel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t first = g * shape.group, columns = columns_of(shape, g);
  std::byte* const scales = panel.group(g);
  std::array<std::uint8_t, fp8_group * panel_rows> codes;  // no group is longer here
  codes.fill(zero_code(shape.code));
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const RandomNumbers numbers = panel.rows[static_cast<std::size_t>(n)].random.value();
    const RandomCoding coding = random_coding(shape.code, numbers.reach);
    const std::uint32_t scale = scale_bits(shape.code, coding.scale);
    const auto scale_bytes = static_cast<std::size_t>(shape.scale_bytes());
    std::memcpy(scales + n * shape.scale_bytes(), &scale, scale_bytes);
    for (std::int64_t k = 0; k < columns; ++k) {
      codes[static_cast<std::size_t>(k * panel_rows + n)] =
          random_code(shape.code, coding, numbers.drawn(first + k));
    }
  }
  put_group(panel, g, codes.data());
}

void pack_quantized(const CodedPanel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t columns = columns_of(shape, g);
  alignas(64) std::array<float, quantize_group * panel_rows> values;
  QuantizedGroups groups;
  gather(panel, g * shape.group, columns, values.data());
  quantize(shape.code, values.data(), groups);
  std::byte* const scales = panel.group(g);
  std::memcpy(scales, groups.scales.data(), sizeof(groups.scales));
  std::fill(groups.codes.begin() + columns * panel_rows, groups.codes.end(), zero_code(shape.code));
  put_group(panel, g, groups.codes.data());
}

/// Codes of eight columns of groups, of 4 bits or bytes.
EightCodes eight_of_groups(const CodedPanel& panel, const std::byte* row, std::int64_t first) {
  const bool is_wide = panel.shape.bits == 8;
  if (panel.order.empty()) return is_wide ? bytes_of(row, first, 8) : nibbles_of(row, first);
  EightCodes codes = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    const std::int64_t k = panel.order[static_cast<std::size_t>(first + i)];
    codes |= (is_wide ? std::to_integer<EightCodes>(row[k]) : EightCodes{mxfp4_code(row, k)})
             << (i * 8);
  }
  return codes;
}

/// Published codes, scales and zero points as they are.
void pack_groups(const CodedPanel& panel, std::int64_t g) {
  const CodedShape& shape = panel.shape;
  const std::int64_t first = g * shape.group;
  std::byte* const scales = panel.group(g);
  for (std::int64_t n = 0; n < panel.count; ++n) {
    const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
    const std::int64_t at = first / row.column_block;
    if (shape.scales == ScaleType::e4m3) {
      scales[n] = row.scales[at];
      write_value(panel.out, DType::f32, n, row.unit * e4m3_unit);
    } else {
      const DType type = shape.scales == ScaleType::f16    ? DType::f16
                         : shape.scales == ScaleType::bf16 ? DType::bf16
                                                           : DType::f32;
      write_value(scales, type, n, scale_value(row.scales, row.scale_dtype, at));
    }
    if (row.zeros != nullptr) scales[shape.scales_bytes() - panel_rows + n] = row.zeros[at];
    for (std::int64_t k = 0; k < columns_of(shape, g); k += 8) {
      EightCodes codes = eight_of_groups(panel, row.bytes, first + k);
      if (shape.bits == 8) codes = signs_and_sizes(codes);
      put_codes(shape.bits, {&codes}, n,
                scales + shape.scales_bytes() + k / 8 * shape.eight_bytes());
    }
  }
}

void pack_blocks(const CodedPanel& panel) {
  const CodedShape& shape = panel.shape;
  const std::int64_t elements = panel.rows[0].block->elements, blocks = shape.columns / elements;
  const std::int64_t at_once = GgufGroups::elements_max / elements;
  for (std::int64_t b = 0; b < blocks; b += at_once) {
    for (std::int64_t n = 0; n < panel.count; ++n) {
      const WeightRow& row = panel.rows[static_cast<std::size_t>(n)];
      // Rows are far apart: no processor foresees as many.
      const std::byte* const next = row.bytes + (b + at_once) * row.block->bytes;
      for (std::int64_t i = 0; i < at_once * row.block->bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
      }
      pack_gguf_blocks(shape, row, b, std::min(at_once, blocks - b), panel.out, n);
    }
  }
}

}  // namespace

CodedShape coded_shape(WeightCode code, std::int64_t rows, std::int64_t columns,
                       std::int64_t group) {
  return {.code = code,
          .panels = (rows + panel_rows - 1) / panel_rows,
          .columns = columns,
          .group = group,
          .bits = has_nibbles(code) ? 4 : 8,
          .scales = code == WeightCode::fp8     ? ScaleType::f32
                    : code == WeightCode::mxfp4 ? ScaleType::e8m0
                                                : ScaleType::bf16};
}

CodedShape coded_shape(const GroupCodes& codes, std::int64_t rows, std::int64_t columns) {
  return {.code = WeightCode::groups,
          .panels = (rows + panel_rows - 1) / panel_rows,
          .columns = columns,
          .group = codes.group,
          .type = codes.levels,
          .bits = gguf_code_bits(codes.levels),
          .scales = codes.scales == DType::f8_e4m3 ? ScaleType::e4m3
                    : codes.scales == DType::f16   ? ScaleType::f16
                    : codes.scales == DType::bf16  ? ScaleType::bf16
                                                   : ScaleType::f32,
          .has_mins = codes.has_zeros,
          .has_zeros = codes.has_zeros};
}

CodedShape coded_shape(const Weight& weight) {
  require(weight.parts().empty(), "weight: each of several parts has its own panels");
  if (weight.code() == WeightCode::blocks) {
    return coded_shape(weight.type(), weight.rows(), weight.columns());
  }
  if (weight.code() == WeightCode::groups) {
    return coded_shape(weight.groups(), weight.rows(), weight.columns());
  }
  return coded_shape(weight.code(), weight.rows(), weight.columns(), weight.group());
}

std::int64_t group_of(WeightCode code, const WeightSource& source) {
  if (code != WeightCode::fp8) return quantize_group;
  if (source.is_random()) return fp8_group;
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
                       std::byte* out, std::span<const std::int32_t> order) {
  queue.share(source.experts * shape.panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i % shape.panels * panel_rows;
      CodedPanel panel = {.shape = shape,
                          .rows = {},
                          .count = std::min(panel_rows, source.rows - row),
                          .out = out + i * shape.panel_bytes(),
                          .order = order};
      if (!order.empty()) {
        const auto columns = static_cast<std::size_t>(source.columns);
        panel.order = order.subspan(static_cast<std::size_t>(i / shape.panels) * columns, columns);
      }
      for (std::int64_t n = 0; n < panel.count; ++n) {
        panel.rows[static_cast<std::size_t>(n)] =
            source.row(i / shape.panels * source.rows + row + n);
      }
      std::memset(panel.out, 0, static_cast<std::size_t>(shape.panel_bytes()));
      const bool has_blocks = panel.rows[0].block != nullptr;
      if (shape.code == WeightCode::blocks || (shape.code == WeightCode::mxfp4 && has_blocks)) {
        pack_blocks(panel);
        continue;
      }
      for (std::int64_t g = 0; g < shape.groups(); ++g) {
        if (source.is_random()) {
          pack_random(panel, g);
        } else if (shape.code == WeightCode::groups) {
          pack_groups(panel, g);
        } else if (shape.code == WeightCode::fp8) {
          pack_fp8(panel, g);
        } else if (shape.code == WeightCode::mxfp4) {
          pack_mxfp4(panel, g);
        } else {
          pack_quantized(panel, g);
        }
      }
    }
  });
}

std::uint8_t code_at(const CodedShape& shape, const std::byte* panel, std::int64_t n,
                     std::int64_t k) {
  const std::byte* const eight = panel + shape.groups_offset() +
                                 k / shape.group * shape.group_bytes() + shape.scales_bytes() +
                                 k % shape.group / 8 * shape.eight_bytes();
  const auto bits_at = [&](const CodePlace& place) {
    return static_cast<unsigned>(eight[place.byte]) >> place.shift;
  };
  const unsigned lower = bits_at(place_of(shape.bits, n, k % 8));
  if (shape.bits == 8) return static_cast<std::uint8_t>(lower);
  if (shape.bits == 4) return static_cast<std::uint8_t>(lower & 15U);
  const unsigned upper = bits_at(upper_place(shape.bits, n, k % 8)) % (1U << (shape.bits - 4));
  return static_cast<std::uint8_t>((lower & 15U) | upper << 4);
}

void read_coded_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out) {
  if (shape.code == WeightCode::blocks || shape.code == WeightCode::groups) {
    return read_gguf_row(shape, panel, n, out);
  }
  const DType type = shape.code == WeightCode::fp8     ? DType::f32
                     : shape.code == WeightCode::mxfp4 ? DType::u8
                                                       : DType::bf16;
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    const std::byte* const scales = panel + k / shape.group * shape.group_bytes();
    out[k] = level_of(shape.code, code_at(shape, panel, n, k)) * scale_value(scales, type, n);
  }
}

}  // namespace hyb::kernels
