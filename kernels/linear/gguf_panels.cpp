#include "kernels/linear/gguf_panels.h"

#include <cstring>
#include <vector>

#include "kernels/linear/eight_codes.h"
#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
namespace {

/// Scale n of a panel's rows, and its minimum.
void write_halves(std::byte* scales, std::int64_t n, const GgufGroups& groups, bool has_mins) {
  std::memcpy(scales + n * 2, &groups.scale, sizeof(groups.scale));
  if (!has_mins) return;
  std::memcpy(scales + (Weight::panel_rows + n) * 2, &groups.min, sizeof(groups.min));
}

}  // namespace

const LevelTable& gguf_levels(GgufType type) {
  static const std::vector<LevelTable> all = [] {
    std::vector<LevelTable> made(static_cast<std::size_t>(GgufType::q2_0) + 1);
    for (std::size_t t = 0; t < made.size(); ++t) {
      for (unsigned code = 0; code < made[t].size(); ++code) {
        const int level = gguf_level(static_cast<GgufType>(t), code);
        made[t][code] = to_bf16(static_cast<float>(level)).bits;
      }
    }
    return made;
  }();
  return all[static_cast<std::size_t>(type)];
}

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

void pack_gguf_blocks(const CodedShape& shape, const WeightRow& row, std::int64_t first,
                      std::int64_t count, std::byte* panel, std::int64_t n) {
  const std::int64_t in_block = row.block->elements / shape.group, eights = shape.group / 8;
  const std::int64_t group_bytes = shape.group_bytes(), scales_bytes = shape.scales_bytes();
  const bool has_factors = shape.scales == ScaleType::factors;
  const std::byte* block = row.bytes + first * row.block->bytes;
  std::byte* scales = panel + shape.groups_offset() + first * in_block * group_bytes;
  std::byte* units = panel + first * shape.units_bytes();
  GgufGroups groups;
  for (std::int64_t b = 0; b < count; ++b) {
    read_stored_block(row.block->type, block, groups);
    put_codes(shape.bits, {groups.codes.data(), in_block, eights, group_bytes}, n,
              scales + scales_bytes);
    if (has_factors) write_halves(units, n, groups, shape.has_mins);
    for (std::int64_t i = 0; i < in_block; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (has_factors) {
        scales[n] = static_cast<std::byte>(groups.factors[at]);
        if (shape.has_mins)
          scales[Weight::panel_rows + n] = static_cast<std::byte>(groups.min_factors[at]);
      } else if (shape.scales == ScaleType::e8m0) {
        scales[n] = block[0];
      } else {
        write_halves(scales, n, groups, shape.has_mins);
      }
      scales += group_bytes;
    }
    block += row.block->bytes;
    units += shape.units_bytes();
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
