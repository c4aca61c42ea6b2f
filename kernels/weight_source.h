#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "core/base/dtype.h"
#include "core/io/gguf.h"
#include "kernels/floats.h"
#include "kernels/random_numbers.h"

namespace hyb::kernels {

/// The published scales of a tensor of F8_E4M3 or of groups: a row-major matrix, one element for
/// every row_block x column_block numbers (fewer at the edges). An element of the tensor is its
/// number, less the group's zero point, times this.
struct WeightScales {
  DType dtype = DType::f32;  ///< f32, bf16 or f16; u8: E8M0, of MXFP4; f8_e4m3: of NVFP4
  std::span<const std::byte> bytes = {};  ///< none: all are 1
  std::int64_t row_block = 1, column_block = 1;
  std::span<const std::byte> zeros = {};  ///< of whole numbers: a signed byte for each scale
  float unit = 1;                         ///< what the scales of NVFP4 count
  /// Says which group each column is of, as many of each; none: they are runs of columns.
  std::span<const std::int32_t> group_of = {};
};

/// Columns that share a scale of MXFP4, and the bytes that hold them.
inline constexpr std::int64_t mxfp4_group = 32, mxfp4_group_bytes = 16;

/// Bytes of a published row. u8 is MXFP4, or by the type of its scales (GroupCodes) NVFP4 or whole
/// numbers of 4 bits: even columns in the low half of a byte. MXFP4 has whole groups of 32 columns.
constexpr std::int64_t row_bytes_of(DType dtype, std::int64_t columns) {
  if (dtype == DType::u8) return (columns + mxfp4_group - 1) / mxfp4_group * mxfp4_group_bytes;
  return columns * static_cast<std::int64_t>(size_of(dtype));
}

/// Rows of a published tensor that follow each other in it, or others as far apart as each other;
/// bytes may be unaligned.
struct WeightStrip {
  DType dtype;         ///< f32, bf16, f16, f8_e4m3, u8: codes of 4 bits, or i8 in groups
  std::int64_t first;  ///< of the source's experts * rows rows
  std::int64_t rows;
  const std::byte* bytes;
  WeightScales scales = {};
  std::int64_t scales_row = 0;   ///< row of the scaled tensor that the strip starts with
  std::int64_t row_step = 1;     ///< rows of the tensor from one to the next
  std::int64_t column_step = 0;  ///< of a transposed tensor, whose rows are our columns: numbers
                                 ///< from one of our columns to the next; 0: it is not
  std::optional<RandomNumbers> random = {};  ///< made up: number 0 comes first; no bytes
  const GgufBlock* block = nullptr;  ///< of a GGUF file's rows of such blocks; dtype is then f32

  /// Says whether it has codes of GroupCodes.
  bool is_grouped() const {
    return !random && (dtype == DType::i8 || (dtype == DType::u8 && scales.dtype != DType::u8));
  }
};

/// Holds what codes of published groups are, and how they are kept.
///   levels  q4_0   -8..7 by codes 0..15, scales of f32, bf16 or f16 in the file
///           mxfp4  E2M1: NVFP4, whose scales are E4M3 times one f32, and are kept so
///           q8_0   -128..127, published as i8
/// in GGUF's terms, of gguf_code_bits().
struct GroupCodes {
  GgufType levels = GgufType::q4_0;
  DType scales = DType::f32;
  bool has_zeros = false;
  std::int64_t group = 0;  ///< columns that share a scale: 8 to 1024, a power of two
};

/// One row of a source, [columns], which published_value below reads.
struct WeightRow {
  const std::byte* bytes;
  DType dtype;
  DType scale_dtype;
  const std::byte* scales;  ///< null: all are 1
  std::int64_t column_block;
  const std::byte* zeros = nullptr;  ///< as WeightScales has them, and the next
  float unit = 1;
  std::span<const std::int32_t> group_of = {};
  std::int64_t column_step = 1;              ///< numbers from one column to the next
  std::optional<RandomNumbers> random = {};  ///< made up: column 0 comes first; no bytes
  const GgufBlock* block = nullptr;          ///< as WeightStrip has it

  /// Says whether its bytes are the row as `type`.
  bool is_stored_as(DType type) const {
    return dtype == type && column_step == 1 && !random && block == nullptr;
  }
  /// Says whether its codes of 4 bits are whole numbers.
  bool is_int4() const {
    return dtype == DType::u8 && scale_dtype != DType::u8 && scale_dtype != DType::f8_e4m3;
  }
};

/// Says where a weight's numbers are read from: one published tensor, or rows of several, in the
/// order that the weight has them.
struct WeightSource {
  std::int64_t experts;  ///< 1 for a plain matrix
  std::int64_t rows, columns;
  std::vector<WeightStrip> strips;

  /// Made-up rows, as of one tensor of the numbers' type.
  WeightSource(const RandomNumbers& numbers, std::int64_t expert_count, std::int64_t row_count,
               std::int64_t column_count);
  /// Without rows yet.
  WeightSource(std::int64_t expert_count, std::int64_t row_count, std::int64_t column_count);
  /// One tensor as it is stored. Throws as append does.
  WeightSource(DType dtype, std::int64_t expert_count, std::int64_t row_count,
               std::int64_t column_count, std::span<const std::byte> bytes);
  /// One tensor of a GGUF file whose rows are such blocks. Throws Error(model) unless `bytes` are
  /// whole rows of whole blocks that kernels/linear/gguf_blocks.h reads.
  WeightSource(const GgufBlock& block, std::int64_t expert_count, std::int64_t row_count,
               std::int64_t column_count, std::span<const std::byte> bytes);

  /// Appends rows. Throws Error(model) if `bytes` are not
  /// [count,columns] of a dtype that is read, or `scales` not one for each of their blocks.
  void append(DType dtype, std::int64_t count, std::span<const std::byte> bytes,
              const WeightScales& scales = {});

  /// The same with rows first, first + step, ... of another source as wide as this one; those of a
  /// step above 1 are of one strip.
  void append(const WeightSource& from, std::int64_t first, std::int64_t count,
              std::int64_t step = 1);

  /// The same with rows that are stored as [columns,count], f32, bf16 or f16.
  void append_transposed(DType dtype, std::int64_t count, std::span<const std::byte> bytes);

  /// The strip that holds a row of all experts' rows, and that row.
  const WeightStrip& strip_of(std::int64_t row) const;
  WeightRow row(std::int64_t row) const;

  /// Says whether it is made up: all of it, and without bytes.
  bool is_random() const { return !strips.empty() && strips.front().random.has_value(); }
  /// Says whether all of it is of this type, and neither in blocks nor in groups.
  bool is_all(DType dtype) const;
  /// The blocks that all of it is in; nullptr: it is not.
  const GgufBlock* block() const;
  /// Returns what all of it is kept as in groups; nullopt: it has other types, or several kinds of
  /// codes.
  std::optional<GroupCodes> groups() const;
  /// Says whether all rows of an expert have the same columns in the same groups.
  bool groups_alike() const;
  /// Returns, of such a source the columns of each expert by their groups, [experts,columns], those
  /// of a group in their order; empty: groups are runs of columns.
  std::vector<std::int32_t> columns_by_group() const;
  /// Columns that share a scale in every row: the greatest run that all strips agree on; 0: all.
  std::int64_t scale_columns() const;

  /// Throws Error or fails by require() unless the strips hold all rows.
  void check() const;
};

/// Column k of a row of MXFP4.
inline std::uint8_t mxfp4_code(const std::byte* row, std::int64_t k) {
  const unsigned both = static_cast<unsigned>(row[k / 2]);
  return static_cast<std::uint8_t>(both >> (k % 2 * 4) & 15U);
}

/// Element i of published bytes (f32, bf16, f16, f8_e4m3, i8, or u8: E2M1), which may be unaligned.
inline float published_value(const std::byte* bytes, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, bytes + i * 4, sizeof(value));
    return value;
  }
  if (dtype == DType::f8_e4m3) return e4m3_to_float(static_cast<std::uint8_t>(bytes[i]));
  if (dtype == DType::u8) return e2m1_to_float(mxfp4_code(bytes, i));
  if (dtype == DType::i8) return static_cast<float>(std::to_integer<std::int8_t>(bytes[i]));
  std::uint16_t bits;
  std::memcpy(&bits, bytes + i * 2, sizeof(bits));
  return dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
}

/// Scale i of published ones.
inline float scale_value(const std::byte* scales, DType dtype, std::int64_t i) {
  if (dtype == DType::u8) return e8m0_to_float(static_cast<std::uint8_t>(scales[i]));
  return published_value(scales, dtype, i);
}

/// Element i of a published row, with its scale; not of a row in blocks.
inline float published_value(const WeightRow& row, std::int64_t i) {
  if (row.random) return (*row.random)[i];
  if (row.scales == nullptr) return published_value(row.bytes, row.dtype, i * row.column_step);
  const std::int64_t group =
      row.group_of.empty() ? i / row.column_block : row.group_of[static_cast<std::size_t>(i)];
  float value = row.is_int4() ? static_cast<float>(mxfp4_code(row.bytes, i)) - 8.0F
                              : published_value(row.bytes, row.dtype, i);
  if (row.zeros != nullptr) value -= published_value(row.zeros, DType::i8, group);
  return value * (scale_value(row.scales, row.scale_dtype, group) * row.unit);
}

/// Elements from `first` on of any published row.
void read_numbers(const WeightRow& row, std::int64_t first, std::span<float> out);

/// Writes element i as `dtype` (f32, or bf16 or f16 rounded to nearest) to bytes that may be
/// unaligned.
inline void write_value(std::byte* bytes, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::f32) {
    std::memcpy(bytes + i * 4, &value, sizeof(value));
    return;
  }
  const std::uint16_t rounded = dtype == DType::bf16 ? to_bf16(value).bits : to_f16(value).bits;
  std::memcpy(bytes + i * 2, &rounded, sizeof(rounded));
}

}  // namespace hyb::kernels
