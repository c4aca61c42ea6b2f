#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "kernels/queue.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {

/// Panels of bf16 in 12 bits, exactly: the exponents of a trained matrix carry under 3 bits. A
/// panel is a header and, for each line of the bf16 panel (PanelShape: two columns k of 64
/// outputs), 192 bytes:
///   128 bytes  sign and mantissa of the line's 128 weights, byte i that of weight bits12_place(i),
///              so that these and the exponents' bytes, interleaved within 16, give the bf16 line
///    64 bytes  codes of 4 bits, the place of the exponent in the panel's list: byte i that of byte
///              i in its low half, that of byte 64 + i in its high one
/// The list is 16 neighbouring exponents, or 15 and 0 where zeros are common. A weight whose
/// exponent is not in it has code 0, and a patch.
struct Bits12Shape {
  std::int64_t panels;  ///< per expert
  std::int64_t lines;   ///< of a panel

  static constexpr std::int64_t header_bytes = 64;
  static constexpr std::int64_t line_bytes = 192;
  std::int64_t panel_bytes() const { return header_bytes + lines * line_bytes; }
  std::int64_t expert_bytes() const { return panels * panel_bytes(); }
};

struct Bits12Header {
  std::uint8_t exponents[16];
  std::uint64_t first_patch;  ///< in the list of all panels
  std::uint64_t patches;
};
static_assert(sizeof(Bits12Header) <= Bits12Shape::header_bytes);

/// A weight as it is. Those of a panel are sorted by line.
struct Bits12Patch {
  std::uint32_t line;
  std::uint16_t place;  ///< in the line: 0 to 127
  std::uint16_t bits;   ///< of the bf16
};

constexpr int bits12_place(int i) { return i / 64 * 64 + i / 8 % 2 * 32 + i / 16 % 4 * 8 + i % 8; }

Bits12Shape bits12_shape(std::int64_t rows, std::int64_t columns);

inline const Bits12Header& bits12_header(const std::byte* panel) {
  return *reinterpret_cast<const Bits12Header*>(panel);
}

/// Patches, as a list of Bits12Patch, of the panels that were written to `out`, which holds
/// experts * expert_bytes(); their number may be 0. The source is rounded to bf16.
Buffer pack_bits12_panels(Queue& queue, const WeightSource& source, std::byte* out);

/// Says whether decoding what was packed pays: not with many patches, each of which costs its line
/// about three times the time.
bool bits12_pays(const Bits12Shape& shape, std::int64_t experts, std::size_t patch_bytes);

/// Holds what packing some panels would leave to patches.
struct Bits12Sample {
  std::int64_t weights = 0;  ///< that were read
  std::int64_t patches = 0;  ///< that they need

  double share() const {
    return weights > 0 ? static_cast<double>(patches) / static_cast<double>(weights) : 0;
  }
  /// Works as bits12_pays: at most a patch for eight lines.
  bool pays() const { return patches * 8 * 128 <= weights; }
};

/// Samples `panels` panels, or all that are there, spread over the source.
Bits12Sample sample_bits12(const WeightSource& source, std::int64_t panels);

/// Lines of a bf16 panel on their way to one of 12 bits.
struct Bits12Packing {
  const std::byte* from;
  std::int64_t lines;
  std::uint8_t first;  ///< of the panel's list of exponents
  bool has_zero;       ///< the list is 15 neighbours, and 0 has code 15
  std::byte* to;       ///< the first line of the panel
  /// [lines]: bit i of the two words together, that the weight of byte i needs a patch.
  std::array<std::uint64_t, 2>* unknown;
};

/// Write `to` and `unknown`.
void bits12_pack_lines_avx512(const Bits12Packing& packing);
void bits12_pack_lines_avx2(const Bits12Packing& packing);
void bits12_pack_lines_plain(const Bits12Packing& packing);

void (*bits12_pack_lines(Isa isa))(const Bits12Packing&);

/// Row n of the panel as `columns` floats. `patches` is the list of all panels.
void read_bits12_row(const std::byte* panel, const Bits12Patch* patches, std::int64_t n,
                     std::span<float> out);

/// A run of a panel's lines, and for `few` rows to multiply it with:
///
///   sums[r][n] = (first ? 0 : sums[r][n]) + sum over k of rows[r][k] * panel[k][n]
///
/// Rows are bf16, and the sums have the bits that the bf16 panel gives.
struct Bits12Tile {
  const std::byte* panel;      ///< with its header, wherever the run starts
  const Bits12Patch* patches;  ///< of the run
  const Bits12Patch* patches_end;
  std::int64_t first_line;  ///< of the run
  std::int64_t columns;     ///< length of the run; an odd one ends the rows
  std::byte* lines;         ///< room for the run as lines of bf16; few: null, they are not wanted
  const void* const* rows;  ///< few: `count` pointers to the rows' first element of this run
  std::int64_t count;       ///< 1 to panel_tile_rows
  float* sums;              ///< [count][64]
  bool first;
  std::int64_t ahead_bytes;  ///< from a line to what is prefetched with it: a hint, never read
};

/// Writes `lines`.
void bits12_unpack_avx512(const Bits12Tile& tile);
void bits12_unpack_avx2(const Bits12Tile& tile);
void bits12_unpack_plain(const Bits12Tile& tile);

/// Writes `sums` straight from the codes. With AVX-512 up to panel_tile_rows, and `lines` on the
/// way: beside the products that costs a quarter of what unpacking costs by itself. With AVX2 up to
/// bits12_few_rows_avx2, and no lines.
void bits12_few_avx512(const Bits12Tile& tile);
void bits12_few_avx2(const Bits12Tile& tile);
constexpr std::int64_t bits12_few_rows_avx2 = 3;

struct Bits12Kernel {
  void (*unpack)(const Bits12Tile&) = nullptr;  ///< null: for other weights
  void (*few)(const Bits12Tile&) = nullptr;     ///< null: this set has none
  std::int64_t direct_rows = 0;                 ///< up to this many go straight from the codes
  bool few_keeps_lines = false;
};

Bits12Kernel bits12_kernel(Isa isa);

/// Columns whose lines of bf16 (128 KB) stay in the second-level cache while all rows pass by.
constexpr std::int64_t bits12_run = 1024;
constexpr std::int64_t bits12_ahead_bytes = 4096;

}  // namespace hyb::kernels
