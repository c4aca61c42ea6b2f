#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/gguf.h"

namespace hyb::kernels {

/// Levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
inline constexpr std::array<std::int8_t, 16> iq4_levels = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// What every quantised type of GGUF comes to: a block in whole numbers, with a scale and a minimum
/// for each group of columns. Element e of a block is
///
///   scales[e / group] * levels[e] - mins[e / group]
///
/// in f32, the product first: exact without minima, rounded once with them, and then bit for bit
/// what ggml's own dequantisation gives (ggml-quants.c, dequantize_row_*; layouts to the bit in
/// gguf-py's quants.py).
struct GgufGroups {
  static constexpr int elements_max = 256;
  static constexpr int groups_max = 16;

  int group = 0;  ///< columns: 16, 32, 64 or 128
  bool has_mins = false;
  std::array<std::int8_t, elements_max> levels;
  std::array<float, groups_max> scales, mins;  ///< mins: where has_mins
  /// Where has_gguf_factors(): scales are `scale` times whole numbers, exactly, mins `min`.
  float scale, min;
  std::array<std::int8_t, groups_max> factors, min_factors;
};

/// Whether read_gguf_block() reads a type. It does not read F32, F16, BF16 and whole numbers, which
/// have no blocks, nor types of activations (Q8_1, Q8_K), nor those with codebooks (IQ1_*, IQ2_*,
/// IQ3_*).
bool is_gguf_coded(GgufType type);

/// Columns that share a scale in a type that is_gguf_coded().
int gguf_group(GgufType type);

/// Whether a block has subtracted minima.
bool has_gguf_mins(GgufType type);

/// Whether a block of 256 has one scale, times a whole number for each group.
bool has_gguf_factors(GgufType type);

/// Bits of the codes by which weights keep a type in memory: 4, 5, 6 or 8; 0: it is not kept.
int gguf_code_bits(GgufType type);

/// The level of a code of 4 to 6 bits; several codes may have the same one.
int gguf_level(GgufType type, unsigned code);

/// Reads one block, of gguf_block(type)->bytes bytes that may be unaligned.
void read_gguf_block(GgufType type, const std::byte* block, GgufGroups& out);

/// Consecutive blocks, from the first on, as numbers; `out` has whole blocks.
void read_gguf_values(GgufType type, const std::byte* blocks, std::span<float> out);

}  // namespace hyb::kernels
