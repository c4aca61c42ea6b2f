#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <vector>

#include "kernels/floats.h"
#include "kernels/weight.h"
#include "tests/kernels/linear/gguf_stored.h"

namespace hyb::kernels::testing {

/// Published numbers in groups of columns: u8 or i8 codes, scales of any type, zero points.
struct GroupedMatrix {
  GroupedMatrix(DType type, DType scale_type, bool has_zeros, std::int64_t group,
                std::int64_t experts, std::int64_t rows, std::int64_t columns, unsigned seed)
      : source(experts, rows, columns) {
    std::mt19937 engine(seed);
    const std::int64_t all = experts * rows, groups = columns / group;
    codes.resize(static_cast<std::size_t>(all * (type == DType::u8 ? columns / 2 : columns)));
    for (std::byte& code : codes) code = static_cast<std::byte>(engine() & 0xffU);
    scales.resize(static_cast<std::size_t>(all * groups) * size_of(scale_type));
    for (std::int64_t i = 0; i < all * groups; ++i) {
      if (scale_type == DType::f8_e4m3) {  // from 0 on, with subnormals
        scales[static_cast<std::size_t>(i)] = static_cast<std::byte>(engine() % 0x7f);
      } else {
        write_value(scales.data(), scale_type, i, 0.001F * static_cast<float>(1 + engine() % 50));
      }
    }
    if (has_zeros) zeros.resize(static_cast<std::size_t>(all * groups));
    for (std::byte& zero : zeros)
      zero = static_cast<std::byte>(static_cast<int>(engine() % 17) - 8);
    source.append(type, all, codes,
                  {.dtype = scale_type,
                   .bytes = scales,
                   .column_block = group,
                   .zeros = zeros,
                   .unit = scale_type == DType::f8_e4m3 ? 0.0003F : 1.0F});
  }

  /// Groups are no longer runs of columns.
  void shuffle(unsigned seed) {
    std::mt19937 engine(seed);
    WeightScales& own = source.strips.front().scales;
    for (std::int64_t k = 0; k < source.columns; ++k) {
      group_of.push_back(static_cast<std::int32_t>(k / own.column_block));
    }
    for (std::size_t k = group_of.size(); k > 1; --k)
      std::swap(group_of[k - 1], group_of[engine() % k]);
    own.group_of = group_of;
  }

  std::vector<float> row(std::int64_t n) const {
    std::vector<float> values(static_cast<std::size_t>(source.columns));
    read_numbers(source.row(n), 0, values);
    return values;
  }

  std::vector<std::byte> codes, scales, zeros;
  std::vector<std::int32_t> group_of;
  WeightSource source;
};

/// Published numbers: F8_E4M3 with f32 scales of blocks, MXFP4 (u8), or bf16; or blocks.
struct PublishedMatrix {
  explicit PublishedMatrix(GroupedMatrix groups)
      : bytes(std::move(groups.codes)),
        mxfp4_scales(std::move(groups.scales)),
        zeros(std::move(groups.zeros)),
        source(std::move(groups.source)) {}
  PublishedMatrix(GgufType type, std::int64_t experts, std::int64_t rows, std::int64_t columns,
                  unsigned seed)
      : bytes(Stored(type, experts, rows, columns, seed).bytes),
        source(block_of(type), experts, rows, columns, bytes) {}
  PublishedMatrix(DType type, std::int64_t experts, std::int64_t rows, std::int64_t columns,
                  std::int64_t row_block, std::int64_t column_block, unsigned seed)
      : source(experts, rows, columns) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(columns)));
    const std::int64_t all = experts * rows;
    if (type == DType::u8) {
      const std::int64_t groups = (columns + mxfp4_group - 1) / mxfp4_group;
      for (std::int64_t i = 0; i < all * groups * mxfp4_group_bytes; ++i) {
        bytes.push_back(static_cast<std::byte>(engine() & 0xffU));
      }
      for (std::int64_t i = 0; i < all * groups; ++i) {
        mxfp4_scales.push_back(static_cast<std::byte>(118 + engine() % 4));
      }
      source.append(type, all, bytes,
                    {.dtype = DType::u8, .bytes = mxfp4_scales, .column_block = mxfp4_group});
      return;
    }
    if (type == DType::f8_e4m3) {
      for (std::int64_t i = 0; i < all * columns; ++i) {
        const auto code = static_cast<std::uint8_t>(engine());
        bytes.push_back(std::byte{code} == std::byte{0x7f} || code == 0xff ? std::byte{3}
                                                                           : std::byte{code});
      }
      const std::int64_t blocks = ((all - 1) / row_block + 1) * ((columns - 1) / column_block + 1);
      for (std::int64_t i = 0; i < blocks; ++i) scales.push_back(0.01F + std::fabs(normal(engine)));
    } else {
      for (std::int64_t i = 0; i < all * columns; ++i) {
        const std::uint16_t bits = to_bf16(normal(engine)).bits;
        bytes.push_back(static_cast<std::byte>(bits & 0xffU));
        bytes.push_back(static_cast<std::byte>(bits >> 8));
      }
    }
    source.append(type, all, bytes,
                  {.dtype = DType::f32,
                   .bytes = std::as_bytes(std::span(scales)),
                   .row_block = row_block,
                   .column_block = column_block});
  }

  std::vector<std::byte> bytes, mxfp4_scales, zeros;  ///< scales: of groups, too
  std::vector<float> scales;
  WeightSource source;
};

/// A code, and where it is fp8 the blocks of its published scales, as far as there are rows and
/// columns.
struct CodedFormat {
  WeightCode code;
  std::int64_t row_block = 128, column_block = 128;
  GgufType type = GgufType::f32;  ///< of blocks
  /// Of groups, of which column_block columns share a scale.
  DType codes = DType::u8, scales = DType::bf16;
  bool has_zeros = false;

  bool is_wide() const { return code == WeightCode::blocks || code == WeightCode::groups; }
  /// The least width from `columns` on that it can have.
  std::int64_t width(std::int64_t columns) const {
    if (!is_wide()) return columns;
    const std::int64_t elements = code == WeightCode::groups
                                      ? std::max<std::int64_t>(column_block, 32)
                                      : block_of(type).elements;
    return (columns + elements - 1) / elements * elements;
  }
};
inline constexpr std::int64_t block_of_all = std::int64_t{1} << 40;
/// All that are published: fp8 with scales of blocks, of rows and of a tensor; and what hyb makes.
inline constexpr CodedFormat all_formats[] = {{WeightCode::fp8},
                                              {WeightCode::fp8, 1, block_of_all},
                                              {WeightCode::fp8, block_of_all, block_of_all},
                                              {WeightCode::q8},
                                              {WeightCode::q4},
                                              {WeightCode::mxfp4}};

/// Blocks of GGUF files that a card keeps.
inline constexpr CodedFormat blocks_of(GgufType type) { return {WeightCode::blocks, 0, 0, type}; }
inline constexpr CodedFormat block_formats[] = {
    blocks_of(GgufType::q4_0),  blocks_of(GgufType::q4_1), blocks_of(GgufType::q4_k),
    blocks_of(GgufType::q5_0),  blocks_of(GgufType::q5_1), blocks_of(GgufType::q5_k),
    blocks_of(GgufType::q6_k),  blocks_of(GgufType::q8_0), blocks_of(GgufType::iq4_nl),
    blocks_of(GgufType::iq4_xs)};

/// Published groups that a card keeps.
inline constexpr CodedFormat groups_of(DType codes, DType scales, bool has_zeros,
                                       std::int64_t group) {
  return {WeightCode::groups, 1, group, GgufType::f32, codes, scales, has_zeros};
}
inline constexpr CodedFormat group_formats[] = {
    groups_of(DType::u8, DType::bf16, false, 32),  groups_of(DType::u8, DType::f16, true, 64),
    groups_of(DType::u8, DType::bf16, false, 256), groups_of(DType::u8, DType::f16, true, 128),
    groups_of(DType::i8, DType::bf16, false, 160), groups_of(DType::u8, DType::f8_e4m3, false, 16)};

/// All formats, and of blocks those that between them meet every way of reading any.
inline std::vector<CodedFormat> formats_on_cards() {
  std::vector<CodedFormat> formats(std::begin(all_formats), std::end(all_formats));
  for (const GgufType type :
       {GgufType::q4_1, GgufType::iq4_xs, GgufType::q5_k, GgufType::q6_k, GgufType::q8_0}) {
    formats.push_back(blocks_of(type));
  }
  formats.insert(formats.end(), std::end(group_formats) - 3, std::end(group_formats));
  return formats;
}
/// Row counts that meet all routes; of blocks, which are wider, fewer.
inline std::vector<std::int64_t> row_counts(const CodedFormat& format) {
  if (format.is_wide()) return {3, 17};
  return {1, 3, 8, 17, 64, 300};
}
inline std::vector<std::int64_t> few_row_counts(const CodedFormat& format) {
  if (format.width(1) > 32) return {};
  return {3, 13};
}

/// A weight with codes, and its numbers.
struct CodedMatrix {
  CodedMatrix(Queue& queue, WeightCode code, std::int64_t experts, std::int64_t rows,
              std::int64_t columns, unsigned seed, bool blocks = true)
      : CodedMatrix(queue, {code, blocks ? 128 : 1, blocks ? 128 : columns}, experts, rows, columns,
                    seed) {}
  CodedMatrix(Queue& queue, const CodedFormat& format, std::int64_t experts, std::int64_t rows,
              std::int64_t columns, unsigned seed)
      : published(
            format.code == WeightCode::groups
                ? PublishedMatrix(GroupedMatrix(format.codes, format.scales, format.has_zeros,
                                                format.column_block, experts, rows, columns, seed))
            : format.code == WeightCode::blocks
                ? PublishedMatrix(format.type, experts, rows, columns, seed)
                : PublishedMatrix(format.code == WeightCode::fp8     ? DType::f8_e4m3
                                  : format.code == WeightCode::mxfp4 ? DType::u8
                                                                     : DType::bf16,
                                  experts, rows, columns,
                                  std::min(format.row_block, experts * rows),
                                  std::min(format.column_block, columns), seed)),
        weight(Weight::pack(queue, published.source, DType::bf16,
                            format.code == WeightCode::q8   ? Quantize::q8
                            : format.code == WeightCode::q4 ? Quantize::q4
                                                            : Quantize::none)) {}

  /// All experts' rows.
  std::vector<float> values() const {
    std::vector<float> all(
        static_cast<std::size_t>(weight.experts() * weight.rows() * weight.columns()));
    const auto columns = static_cast<std::size_t>(weight.columns());
    for (std::int64_t r = 0; r < weight.experts() * weight.rows(); ++r) {
      weight.read_row(r / weight.rows(), r % weight.rows(),
                      std::span(all).subspan(static_cast<std::size_t>(r) * columns, columns));
    }
    return all;
  }

  /// Of every number its size; of one with a minimum those of both terms.
  std::vector<float> sizes() const {
    std::vector<float> all = values();
    for (float& value : all) value = std::fabs(value);
    for (std::size_t i = 0; i < all.size() && !published.zeros.empty(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const WeightRow row = published.source.row(at / weight.columns());
      const std::int64_t group = at % weight.columns() / row.column_block;
      all[i] += 2 * std::fabs(scale_value(row.scales, row.scale_dtype, group) *
                              published_value(row.zeros, DType::i8, group));
    }
    if (weight.code() != WeightCode::blocks) return all;
    const GgufBlock& block = block_of(weight.type());
    GgufGroups groups;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t in = i % block.elements;
      const std::byte* const from = published.bytes.data() + i / block.elements * block.bytes;
      if (in == 0) read_gguf_block(block.type, from, groups);
      const std::size_t group = in / static_cast<std::size_t>(groups.group);
      if (groups.has_mins) all[i] += 2 * std::fabs(groups.mins[group]);
    }
    return all;
  }

  PublishedMatrix published;
  Weight weight;
};

inline constexpr WeightCode all_codes[] = {WeightCode::fp8, WeightCode::q8, WeightCode::q4,
                                           WeightCode::mxfp4};

inline const char* name_of(WeightCode code) {
  constexpr const char* names[] = {"plain",  "fp8",   "q8",     "q4",
                                   "bits12", "mxfp4", "blocks", "groups"};
  return names[static_cast<int>(code)];
}

}  // namespace hyb::kernels::testing
