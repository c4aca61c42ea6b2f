#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/gguf.h"
#include "kernels/floats.h"

namespace hyb::kernels {

/// Levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
inline constexpr std::array<std::int8_t, 16> iq4_levels = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// Codes of eight columns of a row, a byte each, the first one lowest: what published rows of any
/// layout are read as, and what panels (CodedShape) are written from.
using EightCodes = std::uint64_t;

/// Whole numbers from -128 on as signs and sizes.
constexpr EightCodes signs_and_sizes(EightCodes numbers) {
  constexpr EightCodes ones = 0x0101010101010101U;
  const EightCodes signs = numbers >> 7 & ones;
  return ((numbers ^ signs * 255) + signs) | signs << 7;
}

/// Holds what every quantised type of GGUF comes to: a block in whole numbers, with a scale and a
/// minimum for each group of columns. Element e of a block is
///
///   scales[e / group] * gguf_level(type, code(e)) - mins[e / group]
///
/// in f32, the product first: exact without minima, rounded once with them, and then bit for bit
/// what ggml's own dequantisation gives (ggml-quants.c, dequantize_row_*; layouts to the bit in
/// gguf-py's quants.py).
struct GgufGroups {
  static constexpr int elements_max = 256;
  static constexpr int groups_max = 16;

  int group = 0;  ///< columns: 16, 32, 64 or 128
  bool has_mins = false;
  std::array<EightCodes, elements_max / 8> codes;
  /// They are as stored; not of MXFP4 and NVFP4. Where has_gguf_factors() scales are `scale` times
  /// whole numbers, exactly, mins `min`; else they are all `scale` and `min`.
  f16 scale, min;
  std::array<std::int8_t, groups_max> factors, min_factors;
  std::array<float, groups_max> scales, mins;  ///< of read_gguf_block(); mins: where has_mins

  std::uint8_t code(std::size_t e) const {
    return static_cast<std::uint8_t>(codes[e / 8] >> (e % 8 * 8));
  }
};

/// Says whether read_gguf_block() reads a type. It does not read F32, F16, BF16 and whole numbers,
/// which have no blocks, nor types of activations (Q8_1, Q8_K), nor those with codebooks (IQ1_*,
/// IQ2_*, IQ3_*).
bool is_gguf_coded(GgufType type);

/// Columns that share a scale in a type that is_gguf_coded().
int gguf_group(GgufType type);

/// Says whether a block has subtracted minima.
bool has_gguf_mins(GgufType type);

/// Says whether a block of 256 has one scale, times a whole number for each group.
bool has_gguf_factors(GgufType type);

/// Bits of the codes by which weights keep a type in memory: 4, 5, 6 or 8; 0: it is not kept.
int gguf_code_bits(GgufType type);

/// The level of a code: of up to 6 bits, whatever is above them, or of 8, sign and size, of which
/// 0x80 is -128; several codes may have the same one.
int gguf_level(GgufType type, unsigned code);

/// Reads one block, of gguf_block(type)->bytes bytes that may be unaligned.
void read_gguf_block(GgufType type, const std::byte* block, GgufGroups& out);
/// The same as far as it is stored: without scales and mins.
void read_stored_block(GgufType type, const std::byte* block, GgufGroups& out);

/// Consecutive blocks, from the first on, as numbers; `out` has whole blocks.
void read_gguf_values(GgufType type, const std::byte* blocks, std::span<float> out);

}  // namespace hyb::kernels
