#include "kernels/linear/bits12.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "kernels/floats.h"
#include "kernels/linear/pack.h"
#include "kernels/weight.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t bf16_line_bytes = PanelShape::line_bytes;

using Exponents = std::array<std::uint8_t, 16>;

/// The 16 that most weights have, by every eighth line of a long panel.
Exponents choose_exponents(const std::byte* lines, std::int64_t count) {
  const std::int64_t step = count > 64 ? 8 : 1;
  std::array<std::array<std::uint32_t, 256>, 4> counts{};  // neighbours are often equal
  for (std::int64_t line = 0; line < count; line += step) {
    std::array<std::uint16_t, 128> weights;
    std::memcpy(weights.data(), lines + line * bf16_line_bytes, sizeof(weights));
    for (std::size_t i = 0; i < weights.size(); ++i) ++counts[i % 4][weights[i] >> 7 & 255U];
  }
  std::array<std::uint64_t, 257> before{};  // weights of smaller exponents
  for (std::size_t e = 0; e < 256; ++e) {
    before[e + 1] = before[e] + counts[0][e] + counts[1][e] + counts[2][e] + counts[3][e];
  }
  const std::uint64_t zeros = before[1];
  std::size_t base = 0;
  bool has_zero = false;
  std::uint64_t most = 0;
  for (std::size_t first = 0; first <= 241; ++first) {
    const std::uint64_t sixteen = first <= 240 ? before[first + 16] - before[first] : 0;
    const std::uint64_t fifteen = before[first + 15] - before[first] + (first > 0 ? zeros : 0);
    if (std::max(sixteen, fifteen) <= most) continue;
    most = std::max(sixteen, fifteen);
    has_zero = fifteen > sixteen;
    base = first;
  }
  Exponents exponents;
  for (std::size_t i = 0; i < 16; ++i) exponents[i] = static_cast<std::uint8_t>(base + i);
  if (has_zero) exponents[15] = 0;
  return exponents;
}

/// The sign and mantissa, and the exponents, of 16 weights; the bytes of `first` come first.
struct Split {
  __m128i rest, exponents;

  Split(__m128i first, __m128i second) {
    const __m128i byte = _mm_set1_epi16(0xff), sign = _mm_set1_epi16(0x80),
                  mantissa = _mm_set1_epi16(0x7f);
    const auto rest_of = [&](__m128i w) {
      return _mm_or_si128(_mm_and_si128(_mm_srli_epi16(w, 8), sign), _mm_and_si128(w, mantissa));
    };
    const auto exponent_of = [&](__m128i w) { return _mm_and_si128(_mm_srli_epi16(w, 7), byte); };
    rest = _mm_packus_epi16(rest_of(first), rest_of(second));
    exponents = _mm_packus_epi16(exponent_of(first), exponent_of(second));
  }
};

/// The lines of one panel.
class Packer {
 public:
  Packer(const Exponents& exponents, std::vector<Bits12Patch>& patches)
      : base_(_mm_set1_epi8(static_cast<char>(exponents[0]))),
        zero_code_(exponents[0] > 0 && exponents[15] == 0 ? _mm_set1_epi8(15)
                                                          : _mm_setzero_si128()),
        has_zero_(exponents[0] > 0 && exponents[15] == 0),
        patches_(patches) {}

  void pack_line(const std::byte* from, std::uint32_t line, std::byte* to) {
    for (int lane = 0; lane < 4; ++lane) {
      __m128i codes[2];
      for (int half = 0; half < 2; ++half) {
        const std::byte* const first = from + half * 128 + lane * 16;
        const Split split(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first)),
                          _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + 64)));
        const int byte = half * 64 + lane * 16;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + byte), split.rest);
        codes[half] = codes_of(split.exponents, from, line, byte);
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 128 + lane * 16),
                       _mm_or_si128(codes[0], _mm_slli_epi16(codes[1], 4)));
    }
  }

 private:
  __m128i codes_of(__m128i exponents, const std::byte* from, std::uint32_t line, int byte) {
    const __m128i most = _mm_set1_epi8(has_zero_ ? 14 : 15);
    __m128i codes = _mm_sub_epi8(exponents, base_);
    __m128i is_known = _mm_cmpeq_epi8(_mm_min_epu8(codes, most), codes);
    if (has_zero_) {
      const __m128i is_zero = _mm_cmpeq_epi8(exponents, _mm_setzero_si128());
      codes = _mm_or_si128(_mm_andnot_si128(is_zero, codes), _mm_and_si128(is_zero, zero_code_));
      is_known = _mm_or_si128(is_known, is_zero);
    }
    int unknown = ~_mm_movemask_epi8(is_known) & 0xffff;
    for (; unknown != 0; unknown &= unknown - 1) {
      const int place = bits12_place(byte + __builtin_ctz(static_cast<unsigned>(unknown)));
      std::uint16_t bits;
      std::memcpy(&bits, from + place * 2, sizeof(bits));
      patches_.push_back({line, static_cast<std::uint16_t>(place), bits});
    }
    return _mm_and_si128(codes, is_known);
  }

  __m128i base_, zero_code_;
  bool has_zero_;
  std::vector<Bits12Patch>& patches_;
};

void pack_panel(const std::byte* bf16_lines, std::int64_t lines, std::byte* out,
                std::vector<Bits12Patch>& patches) {
  const Exponents exponents = choose_exponents(bf16_lines, lines);
  Bits12Header header{};
  std::copy(exponents.begin(), exponents.end(), header.exponents);
  Packer packer(exponents, patches);
  for (std::int64_t line = 0; line < lines; ++line) {
    packer.pack_line(bf16_lines + line * bf16_line_bytes, static_cast<std::uint32_t>(line),
                     out + Bits12Shape::header_bytes + line * Bits12Shape::line_bytes);
  }
  header.patches = patches.size();
  std::memset(out, 0, Bits12Shape::header_bytes);
  std::memcpy(out, &header, sizeof(header));
}

/// The bf16 of byte `i` of a line.
std::uint16_t weight_of(const Bits12Header& header, const std::byte* line, int i) {
  const unsigned rest = static_cast<unsigned>(line[i]);
  const unsigned code = static_cast<unsigned>(line[128 + i % 64]) >> (i / 64 * 4) & 15U;
  return static_cast<std::uint16_t>(
      (rest & 0x80U) << 8 | static_cast<unsigned>(header.exponents[code]) << 7 | (rest & 0x7fU));
}

}  // namespace

Bits12Shape bits12_shape(std::int64_t rows, std::int64_t columns) {
  return {.panels = (rows + Weight::panel_rows - 1) / Weight::panel_rows,
          .lines = (columns + 1) / 2};
}

Buffer pack_bits12_panels(Queue& queue, const WeightSource& source, std::byte* out) {
  const Bits12Shape shape = bits12_shape(source.rows, source.columns);
  const std::int64_t panels = source.experts * shape.panels;
  std::vector<std::vector<Bits12Patch>> patches(static_cast<std::size_t>(panels));
  queue.share(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::byte> lines(static_cast<std::size_t>(shape.lines * bf16_line_bytes));
    for (std::int64_t i = begin; i < end; ++i) {
      pack_panel_of(source, DType::bf16, i, lines.data());
      pack_panel(lines.data(), shape.lines, out + i * shape.panel_bytes(),
                 patches[static_cast<std::size_t>(i)]);
    }
  });
  std::size_t count = 0;
  for (std::int64_t i = 0; i < panels; ++i) {
    const std::uint64_t first = count;
    std::memcpy(out + i * shape.panel_bytes() + offsetof(Bits12Header, first_patch), &first,
                sizeof(first));
    count += patches[static_cast<std::size_t>(i)].size();
  }
  Buffer all(Device::cpu, count * sizeof(Bits12Patch));
  std::byte* to = all.data();
  for (const std::vector<Bits12Patch>& own : patches) {
    if (own.empty()) continue;
    std::memcpy(to, own.data(), own.size() * sizeof(Bits12Patch));
    to += own.size() * sizeof(Bits12Patch);
  }
  return all;
}

bool bits12_pays(const Bits12Shape& shape, std::int64_t experts, std::size_t patch_bytes) {
  const auto patches = static_cast<std::int64_t>(patch_bytes / sizeof(Bits12Patch));
  return patches <= experts * shape.panels * shape.lines / 8;
}

void read_bits12_row(const std::byte* panel, const Bits12Patch* patches, std::int64_t n,
                     std::span<float> out) {
  const Bits12Header& header = bits12_header(panel);
  const auto columns = std::ssize(out);
  const std::byte* line = panel + Bits12Shape::header_bytes;
  std::array<int, 2> bytes{};  // of the row's two columns in every line
  for (int i = 0; i < 128; ++i) {
    if (bits12_place(i) / 2 == n) bytes[static_cast<std::size_t>(bits12_place(i) % 2)] = i;
  }
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::uint16_t bits = weight_of(header, line, bytes[static_cast<std::size_t>(k % 2)]);
    out[static_cast<std::size_t>(k)] = to_float(bf16{bits});
    if (k % 2 == 1) line += Bits12Shape::line_bytes;
  }
  const Bits12Patch* const first = patches + header.first_patch;
  for (const Bits12Patch* patch = first; patch != first + header.patches; ++patch) {
    const std::int64_t k = std::int64_t{patch->line} * 2 + patch->place % 2;
    if (patch->place / 2 != n || k >= columns) continue;
    out[static_cast<std::size_t>(k)] = to_float(bf16{patch->bits});
  }
}

void bits12_unpack_plain(const Bits12Tile& tile) {
  const Bits12Header& header = bits12_header(tile.panel);
  const std::byte* line =
      tile.panel + Bits12Shape::header_bytes + tile.first_line * Bits12Shape::line_bytes;
  const std::int64_t lines = (tile.columns + 1) / 2;
  for (std::int64_t l = 0; l < lines; ++l, line += Bits12Shape::line_bytes) {
    for (int i = 0; i < 128; ++i) {
      const std::uint16_t bits = weight_of(header, line, i);
      std::memcpy(tile.lines + l * bf16_line_bytes + bits12_place(i) * 2, &bits, sizeof(bits));
    }
  }
  for (const Bits12Patch* patch = tile.patches; patch != tile.patches_end; ++patch) {
    const std::int64_t l = std::int64_t{patch->line} - tile.first_line;
    std::memcpy(tile.lines + l * bf16_line_bytes + patch->place * 2, &patch->bits,
                sizeof(patch->bits));
  }
}

Bits12Kernel bits12_kernel(Isa isa) {
  constexpr std::int64_t direct_rows_avx512 = 12;
  switch (isa) {
    case Isa::avx512:
      return {.unpack = bits12_unpack_avx512,
              .few = bits12_few_avx512,
              .direct_rows = direct_rows_avx512,
              .few_keeps_lines = true};
    case Isa::avx2:
      return {.unpack = bits12_unpack_avx2,
              .few = bits12_few_avx2,
              .direct_rows = bits12_few_rows_avx2};
    case Isa::plain:
      break;
  }
  return {.unpack = bits12_unpack_plain};
}

}  // namespace hyb::kernels
