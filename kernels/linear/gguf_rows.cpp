#include "kernels/linear/gguf_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/linear/eight_codes.h"
#include "kernels/linear/gguf_panels.h"
#include "kernels/linear/upload.h"

namespace hyb::kernels {
namespace {

constexpr int half_columns = 64;

bool has_table(GgufType type) { return type == GgufType::iq4_nl || type == GgufType::iq4_xs; }

/// The code of 0, of 4 to 6 bits without a table.
int zero_of(GgufType type) {
  return has_table(type) || gguf_code_bits(type) == 8 ? 0 : -gguf_level(type, 0);
}

/// Adds bits to the word of 32 bits at `at`.
void put(std::byte* at, std::uint32_t bits) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  word |= bits;
  std::memcpy(at, &word, sizeof(word));
}

/// Column k of a row.
void put_code(const GgufRowTraits& traits, GgufType type, std::int64_t k, unsigned code,
              std::byte* codes, std::byte* words) {
  const std::int64_t half = k / half_columns, group = k % half_columns / 32, in = k % 32;
  const bool sixteens = traits.bits == 6 || traits.has_table == 2;
  const std::int64_t q = sixteens ? in % 16 / 4 : in / 8;
  const std::int64_t i = sixteens ? in / 16 * 4 + in % 4 : in % 8;
  if (traits.bits == 8) {
    const std::int64_t place = i / 4 * 4 + i % 2 * 2 + i % 4 / 2;
    codes[half * half_columns + q * 16 + group * 8 + place] =
        static_cast<std::byte>(gguf_level(type, code));
    return;
  }
  const std::int64_t pair = i % 2 * 16, bit = traits.has_table != 0 ? i * 4 : pair + i / 2 * 4;
  put(codes + half * half_columns / 2 + q * 8 + group * 4, (code & 15U) << bit);
  if (traits.bits == 4) return;
  const std::int64_t at = group * 4 + i / 2;
  const std::int64_t word = traits.bits == 5 ? half / 2 * 4 + q : half * 4 + q;
  put(words + (traits.upper_at + word) * 4,
      code >> 4 << (pair + (traits.bits == 5 ? half % 2 * 8 + at : at * 2)));
}

/// Scales and minima of group i of a block that starts with column `first`.
void put_scale(const GgufRowTraits& traits, const GgufGroups& groups, std::int64_t first,
               std::size_t i, std::byte* words) {
  const std::int64_t group = first / groups.group + static_cast<std::int64_t>(i);
  const std::int64_t in_half = half_columns / groups.group;
  std::byte* const second = words + std::int64_t{traits.second_at} * 4;
  if (traits.has_factors == 0) {
    write_value(words, DType::f16, group, groups.scales[i]);
    if (traits.has_mins != 0) write_value(second, DType::f16, group, groups.mins[i]);
    return;
  }
  const std::int64_t step = traits.has_mins != 0 ? 4 : in_half;  // bytes of a half
  std::byte* const factors = words + group / in_half * step + group % in_half;
  factors[0] = static_cast<std::byte>(groups.factors[i]);
  if (traits.has_mins != 0) factors[in_half] = static_cast<std::byte>(groups.min_factors[i]);
  const std::int64_t unit = first / scale_unit_columns;
  write_value(second, DType::f16, unit * 2, to_float(groups.scale));
  if (traits.has_mins != 0) write_value(second, DType::f16, unit * 2 + 1, to_float(groups.min));
}

}  // namespace

bool card_keeps(const GroupCodes& groups, std::int64_t columns) {
  if (columns % 32 != 0) return false;
  if (groups.levels == GgufType::mxfp4) return groups.group == 16;
  return groups.group >= 32 && (groups.levels == GgufType::q4_0 || !groups.has_zeros);
}

bool card_keeps_groups(const WeightSource& source) {
  const std::optional<GroupCodes> groups = source.groups();
  if (!groups || !card_keeps(*groups, source.columns)) return false;
  return std::ranges::all_of(source.strips, [&](const WeightStrip& strip) {
    const WeightScales& scales = strip.scales;
    const bool has_order = !scales.group_of.empty();
    if (has_order && !card_keeps_order(source.experts > 1, source.rows)) return false;
    if (scales.dtype == DType::f16 || scales.dtype == DType::f8_e4m3) return true;
    const auto count = static_cast<std::int64_t>(scales.bytes.size() / size_of(scales.dtype));
    for (std::int64_t i = 0; i < count; ++i) {
      const float scale = scale_value(scales.bytes.data(), scales.dtype, i);
      if (to_float(to_f16(scale)) != scale) return false;
    }
    return true;
  });
}

bool card_keeps(GgufType type) {
  if (type == GgufType::mxfp4) return false;  // which has a code of its own
  return gguf_code_bits(type) > 0 && (gguf_group(type) == 32 || type == GgufType::q6_k);
}

std::int64_t GgufRowsShape::row_bytes() const {
  return chunks() * CodedRowsShape::chunk_columns / (gguf_code_bits(type) == 8 ? 1 : 2);
}

GgufRowTraits GgufRowsShape::traits() const {
  const int bits = gguf_code_bits(type), half = static_cast<int>(chunks()) * 2;
  const bool has_factors = has_gguf_factors(type);
  const bool has_mins = groups ? groups->has_zeros : has_gguf_mins(type);
  const bool is_nvfp4 = groups && type == GgufType::mxfp4;
  const bool is_wide = groups && type == GgufType::q4_0 &&
                       std::gcd(groups->group, columns) % CodedRowsShape::chunk_columns == 0;
  const bool is_shared = is_wide || (has_factors && !has_mins && gguf_group(type) == 32);
  GgufRowTraits traits = {.bits = bits,
                          .base = 0x43004300U,
                          .zero = 0xc300c300U | static_cast<unsigned>(zero_of(type)) * 0x10001U,
                          .has_table = is_nvfp4          ? 2
                                       : has_table(type) ? 1
                                                         : 0,
                          .has_factors = has_factors,
                          .has_mins = has_mins,
                          .has_zeros = groups && has_mins,
                          .first_shift = is_shared ? 1 : 0,
                          .second_shift = has_factors ? 2
                                          : is_wide   ? 1
                                          : is_nvfp4  ? 31
                                                      : 0,
                          .second_at = is_shared ? half / 2 : half,
                          .upper_at = 0,
                          .words = 0};
  const int seconds = has_factors ? (half + 3) / 4 : is_wide ? half / 2 : half;
  traits.upper_at = traits.second_at + (is_nvfp4 ? 1 : has_factors || has_mins ? seconds : 0);
  if (!has_factors && !has_mins &&
      !is_nvfp4) {  // the kernels read one in any case: always the same
    traits.second_at = 0;
    traits.second_shift = 31;
  }
  traits.words = traits.upper_at + (bits == 5 ? half * 2 : bits == 6 ? half * 4 : 0);
  return traits;
}

void write_gguf_row(const GgufRowsShape& shape, const WeightRow& row, std::byte* codes,
                    std::byte* words) {
  const GgufRowTraits traits = shape.traits();
  GgufGroups groups;
  for (std::int64_t first = 0; first < shape.columns; first += row.block->elements) {
    read_gguf_block(shape.type, row.bytes + first / row.block->elements * row.block->bytes, groups);
    for (std::size_t i = 0; i * static_cast<std::size_t>(groups.group) < row.block->elements; ++i) {
      put_scale(traits, groups, first, i, words);
    }
    for (std::size_t k = 0; k < row.block->elements; ++k) {
      put_code(traits, shape.type, first + static_cast<std::int64_t>(k), groups.code(k), codes,
               words);
    }
  }
}

namespace {

/// Writes a row in groups; they are runs of columns in this order.
void write_group_row(const GgufRowsShape& shape, const WeightRow& row,
                     std::span<const std::int32_t> order, std::byte* codes, std::byte* words) {
  const GgufRowTraits traits = shape.traits();
  const bool is_nvfp4 = traits.has_table == 2;
  std::byte* const second = words + std::int64_t{traits.second_at} * 4;
  const std::int64_t group = is_nvfp4 ? 16 : std::int64_t{32} << traits.first_shift;
  for (std::int64_t k = 0; k < shape.columns; k += group) {
    const std::int64_t own = k / row.column_block;
    if (is_nvfp4) {
      words[k / group] = row.scales[own];
      continue;
    }
    // Where a word is shared, both of its scales belong to the chunk.
    const float scale = scale_value(row.scales, row.scale_dtype, own);
    write_value(words, DType::f16, k / group, scale);
    if (row.zeros == nullptr) continue;
    write_value(second, DType::f16, k / group, published_value(row.zeros, DType::i8, own));
  }
  if (is_nvfp4) write_value(second, DType::f32, 0, row.unit);
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    const std::int64_t stored = order.empty() ? k : order[static_cast<std::size_t>(k)];
    const unsigned code = traits.bits == 8 ? static_cast<unsigned>(signs_and_sizes(
                                                 std::to_integer<EightCodes>(row.bytes[stored]))) &
                                                 0xffU
                                           : mxfp4_code(row.bytes, stored);
    put_code(traits, shape.type, k, code, codes, words);
  }
}

}  // namespace

void upload_blocks(Queue& queue, const WeightSource& source, const GgufRowsShape& shape,
                   std::byte* out, std::span<const std::int32_t> order) {
  std::vector<std::byte> rows(static_cast<std::size_t>(source.experts * shape.expert_bytes()));
  const std::int64_t row_bytes = shape.row_bytes(), row_words = shape.traits().words;
  queue.share(source.experts * shape.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i % shape.rows;
      std::byte* const expert = rows.data() + i / shape.rows * shape.expert_bytes();
      std::byte* const codes = expert + n * row_bytes;
      std::byte* const words = expert + shape.codes_bytes() + n * row_words * 4;
      if (shape.groups) {
        write_group_row(shape, source.row(i), order, codes, words);
      } else {
        write_gguf_row(shape, source.row(i), codes, words);
      }
    }
  });
  upload_bytes(queue, rows, out);
}

}  // namespace hyb::kernels
