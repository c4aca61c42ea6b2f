#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_code.h"

namespace hyb::kernels {

/// Where things lie in a weight with codes on a card. An expert is the codes of all its rows, then
/// the scales of all its rows; a row is chunks of 128 columns, the last one filled up with codes of
/// 0. A chunk's columns stand as the matrix instructions want them: for each of 4 lanes q what it
/// takes of the chunk's 4 groups of 32 columns, and of a group the pairs of columns 2q, 8+2q, 16+2q
/// and 24+2q:
///   codes   4 bits  64 bytes of a chunk   [q][group][pair], the pair's first code in the low half
///           8 bits  128 bytes             [q][group][pair][2]
///   scales  bf16, 4 of a chunk; with fp8 one f32
struct CodedRowsShape {
  WeightCode code;
  std::int64_t rows, columns;  ///< of an expert

  static constexpr std::int64_t chunk_columns = 128;

  std::int64_t chunks() const { return (columns + chunk_columns - 1) / chunk_columns; }
  std::int64_t chunk_bytes() const { return code == WeightCode::q4 ? 64 : 128; }
  std::int64_t chunk_scale_bytes() const { return code == WeightCode::fp8 ? 4 : 8; }
  std::int64_t row_bytes() const { return chunks() * chunk_bytes(); }
  std::int64_t row_scale_bytes() const { return chunks() * chunk_scale_bytes(); }
  std::int64_t codes_bytes() const { return rows * row_bytes(); }
  std::int64_t expert_bytes() const {
    return codes_bytes() + (rows * row_scale_bytes() + 15) / 16 * 16;
  }
};

/// Place of column k in the codes of its chunk, counted in codes.
constexpr std::int64_t place_in_chunk(std::int64_t k) {
  return k % 8 / 2 * 32 + k / 32 * 8 + k % 32 / 8 * 2 + k % 2;
}

}  // namespace hyb::kernels
