#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/linear/codes.h"
#include "kernels/linear/pack.h"

namespace hyb::kernels {

/// The levels of a type whose codes have up to 6 bits, by these.
const LevelTable& gguf_levels(GgufType type);
/// The other way round: codes by a level's lower 8 bits; of 8 bits sign and size.
const std::array<std::uint8_t, 256>& gguf_codes(GgufType type);

/// The panels of a type that has gguf_code_bits().
CodedShape coded_shape(GgufType type, std::int64_t rows, std::int64_t columns);

/// Block b of a row, which is row n of the panel: writes its scales and minima to the panel, and
/// its codes to column n of `codes`, [elements of a block][64].
void pack_gguf_block(const CodedShape& shape, const WeightRow& row, std::int64_t b,
                     std::byte* panel, std::int64_t n, std::uint8_t* codes);

/// As read_coded_row().
void read_gguf_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out);

}  // namespace hyb::kernels
