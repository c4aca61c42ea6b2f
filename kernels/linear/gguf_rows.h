#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/io/gguf.h"
#include "kernels/linear/gguf_blocks.h"
#include "kernels/linear/pack.h"
#include "kernels/queue.h"
#include "kernels/weight.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// Layout of the rows of a type of blocks, as a card's kernels read them. What they read in every
/// step has 32 bits, and these constants save them a second constant in one instruction.
struct GgufRowTraits {
  std::int32_t bits;       ///< of a code: 4, 5, 6 (of which 16 columns share a scale) or 8
  std::uint32_t base;      ///< 128, as a pair of bf16
  std::uint32_t zero;      ///< -128 less the code of 0, the same; without a table
  std::int32_t has_table;  ///< of levels: 1: those of IQ4, 2: E2M1
  std::int32_t has_factors, has_mins;       ///< has_factors: scales count an f16 of 256 columns
  std::int32_t has_zeros;                   ///< minima are scales times these
  std::int32_t first_shift, second_shift;   ///< half chunks that share a first or second word: 2^n
  std::int32_t second_at, upper_at, words;  ///< of a row's words, counted in words of 32 bits
};

/// The layout of blocks of GGUF files on a card, exactly. An expert is the codes of all its rows,
/// then the words of all its rows. Codes lie in chunks of 128 columns as CodedRowsShape has them,
/// [half][q][group][8], of 5 and 6 bits the lower 4; what lies past the last column is zero. But
///   4 to 6 bits  eight codes are a word, a pair of neighbours k at bits 2k and 16 + 2k; with a
///                table at bits 4k
///   6 bits       lane q has columns 4q to 4q+3 of both sixteens of a group
///   8 bits       whole numbers from -128 on; of four the bytes are in the order 0, 2, 1, 3
/// Words of a row:
///   first   of each half chunk (64 columns): the f16 scales of its two groups; with factors bytes,
///           those of its groups and then of their minima, and where that is 2 bytes of two halves
///   second  of each half chunk the f16 minima of its groups; with factors of every 256 columns the
///           f16 that the factors count, and that of the minima
///   upper   of each half chunk (of 5 bits: chunk) and lane what its codes have above 4 bits: a
///           pair k of group g at bits b * (4 * g + k / 2) and 16 + that, b bits each; of 5 bits
///           those of the second half follow at 8
/// 0 to 3 % more bytes than in the file.
///
/// Published groups are rows of the same kernels: whole numbers of 4 bits as Q4_0 (with zero points
/// as Q4_1 is, the f16 of whole numbers for minima), where all groups are whole
/// chunks a first (and second) word being of two halves; those of 8 bits as Q8_0; and NVFP4, of
/// which first is the four E4M3 of a half's sixteens, second the row's f32, and columns lie as with
/// 6 bits.
struct GgufRowsShape {
  GgufType type;               ///< of groups their levels
  std::int64_t rows, columns;  ///< of an expert
  std::optional<GroupCodes> groups = {};

  std::int64_t chunks() const {
    return (columns + CodedRowsShape::chunk_columns - 1) / CodedRowsShape::chunk_columns;
  }
  std::int64_t row_bytes() const;  ///< of codes
  GgufRowTraits traits() const;
  std::int64_t codes_bytes() const { return rows * row_bytes(); }
  std::int64_t expert_bytes() const {
    return codes_bytes() + (rows * traits().words * 4 + 15) / 16 * 16;
  }
};

/// Returns the shape of a weight in blocks or in groups.
inline GgufRowsShape gguf_rows_shape(const Weight& weight) {
  const bool has_groups = weight.code() == WeightCode::groups;
  return {weight.type(), weight.rows(), weight.columns(),
          has_groups ? std::optional(weight.groups()) : std::nullopt};
}

/// Says whether a card keeps blocks of a type; others it takes as if they were published as bf16.
bool card_keeps(GgufType type);

/// The same of groups in rows of `columns`, a multiple of 32: of 32 columns or more, or NVFP4's 16;
/// those of 8 bits without zero points.
bool card_keeps(const GroupCodes& groups, std::int64_t columns);
/// Says whether a card keeps groups that are no runs of columns: of one matrix, the rows of whose
/// input are gathered once. Experts would gather each of their visits, and of a single row the
/// gather costs more than the product.
constexpr bool card_keeps_order(bool is_of_experts, std::int64_t rows) {
  return !is_of_experts && rows > 1;
}
/// The same of a matrix, in either: f16 has the scales exactly.
bool card_keeps_groups(const WeightSource& source);

/// Writes a published row of blocks to its codes and words, which are zeros.
void write_gguf_row(const GgufRowsShape& shape, const WeightRow& row, std::byte* codes,
                    std::byte* words);

/// The layout of a source whose blocks or groups a card keeps. `order`: its columns_by_group().
void upload_blocks(Queue& queue, const WeightSource& source, const GgufRowsShape& shape,
                   std::byte* out, std::span<const std::int32_t> order = {});

}  // namespace hyb::kernels
