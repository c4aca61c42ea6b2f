#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/queue.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// bf16 in 12 bits, exactly, as a card has it. A weight's exponent is its row's base plus a code of
/// 4 bits, or the weight is a patch. A row is halves of a chunk, 64 columns each, the last one
/// filled up with finite numbers; of a half, lane q of a matrix instruction's four takes columns 8q
/// to 8q+7 of both groups of 32, as in CodedRowsShape:
///   64 bytes  sign and mantissa of a weight each, [q][group][8]
///   32 bytes  words of eight codes, [q][group]: column 2i's at bit 4i, that of 2i+1 at bit 16+4i
/// An expert is its rows, then their headers. Patches are of all experts.
///
/// A product has the bits that the kernel of the same route gives for bf16. Where bf16 of many rows
/// goes to cuBLASLt, these go to the matrix kernel: the bits of bf16 in batch-invariant mode.
struct Bits12RowsShape {
  std::int64_t rows, columns;  ///< of an expert

  static constexpr std::int64_t half_columns = 64;
  static constexpr std::int64_t half_bytes = 96;
  static constexpr std::int64_t codes_at = 64;  ///< in a half
  /// A patch's column has 16 bits, and the last of them are no columns.
  static constexpr std::int64_t columns_max = 65280;

  std::int64_t halves() const { return (columns + half_columns - 1) / half_columns; }
  std::int64_t row_bytes() const { return halves() * half_bytes; }
  std::int64_t headers_at() const { return rows * row_bytes(); }
  std::int64_t expert_bytes() const { return headers_at() + (rows * 8 + 15) / 16 * 16; }
};

struct Bits12RowHeader {
  std::uint16_t base;         ///< exponent of code 0, 0 to 240
  std::uint16_t first_patch;  ///< its column; none: no_column
  std::uint32_t patches;      ///< where the row's are in the list, where it has any

  static constexpr std::uint16_t no_column = 0xffff;
};
static_assert(sizeof(Bits12RowHeader) == 8);

/// A list of columns << 16 | bits of the bf16, ascending in each row and ended by this.
inline constexpr std::uint32_t bits12_no_patch = 0xffffffffU;

struct Bits12Rows {
  std::vector<std::byte> experts;      ///< expert_bytes() each
  std::vector<std::uint32_t> patches;  ///< of all of them
  std::int64_t patched;                ///< weights
};

/// Packs by all threads of the queue. The source is rounded to bf16; it has at most columns_max
/// columns.
Bits12Rows pack_bits12_rows(Queue& queue, const WeightSource& source);

/// Says whether a matrix of this shape is smaller than bf16, and its columns can be patches.
constexpr bool bits12_rows_take(const Bits12RowsShape& shape) {
  return shape.columns <= Bits12RowsShape::columns_max &&
         shape.expert_bytes() < shape.rows * shape.columns * 2;
}

/// Says whether it is faster than bf16: a patch costs a warp about 40 instructions, and the quarter
/// of the time that 12 bits save has room for 8 of them in 1024 weights. Half of that is taken.
constexpr bool bits12_rows_pay(std::int64_t patched, std::int64_t weights) {
  return patched <= weights / 256;
}

}  // namespace hyb::kernels
