#include "kernels/linear/gguf_panels.h"

#include <cstring>
#include <vector>

#include "kernels/linear/eight_codes.h"
#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
namespace {

void write_half(std::byte* scales, std::int64_t i, f16 value) {
  std::memcpy(scales + i * 2, &value, sizeof(value));
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

void pack_gguf_block(const CodedShape& shape, const WeightRow& row, std::int64_t b,
                     std::byte* panel, std::int64_t n) {
  const std::int64_t groups_of_block = row.block->elements / shape.group;
  const std::byte* const block = row.bytes + b * row.block->bytes;
  GgufGroups groups;
  read_stored_block(row.block->type, block, groups);
  const bool has_factors = shape.scales == ScaleType::factors;
  if (has_factors) {
    write_half(panel + b * shape.units_bytes(), n, groups.scale);
    if (shape.has_mins)
      write_half(panel + b * shape.units_bytes(), Weight::panel_rows + n, groups.min);
  }
  const std::int64_t eights = shape.group / 8;
  for (std::int64_t i = 0; i < groups_of_block; ++i) {
    std::byte* const scales =
        panel + shape.groups_offset() + (b * groups_of_block + i) * shape.group_bytes();
    const auto at = static_cast<std::size_t>(i);
    if (shape.scales == ScaleType::e8m0) {
      scales[n] = block[0];
    } else if (has_factors) {
      scales[n] = static_cast<std::byte>(groups.factors[at]);
      if (shape.has_mins)
        scales[Weight::panel_rows + n] = static_cast<std::byte>(groups.min_factors[at]);
    } else {
      write_half(scales, n, groups.scale);
      if (shape.has_mins) write_half(scales, Weight::panel_rows + n, groups.min);
    }
    put_codes(shape.bits, groups.codes.data() + i * eights, eights, n,
              scales + shape.scales_bytes());
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
