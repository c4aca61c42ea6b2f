#include "kernels/linear/gguf_panels.h"

#include <array>
#include <vector>

#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
namespace {

/// Levels of a type by their codes, as gguf_levels() has them, and the other way round.
struct BlockLevels {
  LevelTable levels;
  std::array<std::uint8_t, 256> codes;  ///< by a level's lower 8 bits

  explicit BlockLevels(GgufType type) : levels(), codes() {
    for (std::size_t i = 0; i < codes.size(); ++i) {  // sign and size, of Q8_0
      codes[i] = static_cast<std::uint8_t>(i <= 128 ? i : 0x80U | (256 - i));
    }
    const int bits = gguf_code_bits(type);
    if (bits < 4 || bits > 6) return;
    for (std::size_t i = levels.size(); i-- > 0;) {  // down, so that the lowest code is taken
      const int level = gguf_level(type, static_cast<unsigned>(i));
      levels[i] = to_bf16(static_cast<float>(level)).bits;
      codes[static_cast<std::uint8_t>(level)] = static_cast<std::uint8_t>(i);
    }
  }
};

const BlockLevels& levels_of(GgufType type) {
  static const std::vector<BlockLevels> all = [] {
    std::vector<BlockLevels> made;
    for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(GgufType::q2_0); ++i) {
      made.emplace_back(static_cast<GgufType>(i));
    }
    return made;
  }();
  return all[static_cast<std::size_t>(type)];
}

void write_half(std::byte* scales, std::int64_t i, float value) {
  write_value(scales, DType::f16, i, value);
}

}  // namespace

const LevelTable& gguf_levels(GgufType type) { return levels_of(type).levels; }
const std::array<std::uint8_t, 256>& gguf_codes(GgufType type) { return levels_of(type).codes; }

CodedShape coded_shape(GgufType type, std::int64_t rows, std::int64_t columns) {
  return {.code = WeightCode::blocks,
          .panels = (rows + Weight::panel_rows - 1) / Weight::panel_rows,
          .columns = columns,
          .group = gguf_group(type),
          .type = type,
          .bits = gguf_code_bits(type),
          .scales = has_gguf_factors(type) ? ScaleType::factors : ScaleType::f16,
          .has_mins = has_gguf_mins(type)};
}

void pack_gguf_block(const CodedShape& shape, const WeightRow& row, std::int64_t b,
                     std::byte* panel, std::int64_t n, std::uint8_t* codes) {
  const std::int64_t elements = row.block->elements;
  GgufGroups groups;
  read_gguf_block(shape.type, row.bytes + b * row.block->bytes, groups);
  const bool has_factors = shape.scales == ScaleType::factors;
  if (has_factors) {
    write_half(panel + b * shape.units_bytes(), n, groups.scale);
    if (shape.has_mins)
      write_half(panel + b * shape.units_bytes(), Weight::panel_rows + n, groups.min);
  }
  for (std::int64_t i = 0; i < elements / shape.group; ++i) {
    const std::int64_t group = b * (elements / shape.group) + i;
    std::byte* const scales = panel + shape.groups_offset() + group * shape.group_bytes();
    const auto at = static_cast<std::size_t>(i);
    if (has_factors) {
      scales[n] = static_cast<std::byte>(groups.factors[at]);
      if (shape.has_mins)
        scales[Weight::panel_rows + n] = static_cast<std::byte>(groups.min_factors[at]);
    } else {
      write_half(scales, n, groups.scales[at]);
      if (shape.has_mins) write_half(scales, Weight::panel_rows + n, groups.mins[at]);
    }
  }
  const std::array<std::uint8_t, 256>& code_of = gguf_codes(shape.type);
  for (std::int64_t k = 0; k < elements; ++k) {
    codes[k * Weight::panel_rows + n] =
        code_of[static_cast<std::uint8_t>(groups.levels[static_cast<std::size_t>(k)])];
  }
}

void read_gguf_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out) {
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    const std::byte* const scales =
        panel + shape.groups_offset() + k / shape.group * shape.group_bytes();
    const std::byte* const units = panel + k / scale_unit_columns * shape.units_bytes();
    const auto scale_at = [&](std::int64_t i) {
      if (shape.scales == ScaleType::f16) return published_value(scales, DType::f16, i);
      if (shape.scales == ScaleType::bf16) return published_value(scales, DType::bf16, i);
      if (shape.scales == ScaleType::f32) return published_value(scales, DType::f32, i);
      if (shape.scales == ScaleType::e4m3) {
        return published_value(scales, DType::f8_e4m3, i) *
               (published_value(panel, DType::f32, i) / 256);  // e4m3_unit
      }
      return published_value(units, DType::f16, i) *
             static_cast<float>(std::to_integer<std::int8_t>(scales[i]));
    };
    const std::uint8_t code = code_at(shape, panel, n, k);
    const float level = shape.bits == 8 ? code == 0x80 ? -128.0F : level_of(WeightCode::q8, code)
                                        : to_float(bf16{gguf_levels(shape.type)[code]});
    out[k] = scale_at(n) * level;
    if (shape.has_zeros) {
      const std::byte* const zeros = scales + shape.scales_bytes() - Weight::panel_rows;
      out[k] -= scale_at(n) * published_value(zeros, DType::i8, n);
    } else if (shape.has_mins) {
      out[k] -= scale_at(Weight::panel_rows + n);
    }
  }
}

}  // namespace hyb::kernels
