#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear/codes.h"
#include "kernels/linear/pack.h"

namespace hyb::kernels {

/// The levels of a type whose codes have up to 6 bits, by these.
const LevelTable& gguf_levels(GgufType type);

/// The panels of a type that has gguf_code_bits().
CodedShape coded_shape(GgufType type, std::int64_t rows, std::int64_t columns);

/// Blocks of a row, which is row n of the panel, with their scales and minima. What the panel has
/// of the row is zeros before.
void pack_gguf_blocks(const CodedShape& shape, const WeightRow& row, std::int64_t first,
                      std::int64_t count, std::byte* panel, std::int64_t n);

/// Works as read_coded_row().
void read_gguf_row(const CodedShape& shape, const std::byte* panel, std::int64_t n, float* out);

}  // namespace hyb::kernels
