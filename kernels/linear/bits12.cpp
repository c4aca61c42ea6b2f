#include "kernels/linear/bits12.h"

#include <algorithm>
#include <bit>
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

/// The 16 that most weights have, by 64 to 127 lines of a long panel.
Exponents choose_exponents(const std::byte* lines, std::int64_t count) {
  const std::int64_t step = std::max<std::int64_t>(1, count / 64);
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

void pack_panel(Isa isa, const std::byte* bf16_lines, std::int64_t lines, std::byte* out,
                std::vector<Bits12Patch>& patches) {
  const Exponents exponents = choose_exponents(bf16_lines, lines);
  Bits12Header header{};
  std::copy(exponents.begin(), exponents.end(), header.exponents);
  std::vector<std::array<std::uint64_t, 2>> unknown(static_cast<std::size_t>(lines));
  bits12_pack_lines(isa)({.from = bf16_lines,
                          .lines = lines,
                          .first = exponents[0],
                          .has_zero = exponents[0] > 0 && exponents[15] == 0,
                          .to = out + Bits12Shape::header_bytes,
                          .unknown = unknown.data()});
  for (std::size_t line = 0; line < unknown.size(); ++line) {
    for (int half = 0; half < 2; ++half) {
      for (std::uint64_t left = unknown[line][static_cast<std::size_t>(half)]; left != 0;
           left &= left - 1) {
        const int place = bits12_place(half * 64 + std::countr_zero(left));
        std::uint16_t bits;
        std::memcpy(&bits,
                    bf16_lines + static_cast<std::int64_t>(line) * bf16_line_bytes + place * 2,
                    sizeof(bits));
        patches.push_back(
            {static_cast<std::uint32_t>(line), static_cast<std::uint16_t>(place), bits});
      }
    }
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
      pack_panel(queue.isa(), lines.data(), shape.lines, out + i * shape.panel_bytes(),
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

Bits12Sample sample_bits12(const WeightSource& source, std::int64_t panels) {
  const Bits12Shape shape = bits12_shape(source.rows, source.columns);
  const std::int64_t all = source.experts * shape.panels;
  std::vector<std::byte> lines(static_cast<std::size_t>(shape.lines * bf16_line_bytes));
  std::vector<std::byte> packed(static_cast<std::size_t>(shape.panel_bytes()));
  Bits12Sample sample;
  for (std::int64_t i = 0; i < std::min(panels, all); ++i) {
    std::vector<Bits12Patch> patches;
    pack_panel_of(source, DType::bf16, panels < all ? all * i / panels : i, lines.data());
    pack_panel(best_isa(), lines.data(), shape.lines, packed.data(), patches);
    sample.weights += shape.lines * 128;
    sample.patches += std::ssize(patches);
  }
  return sample;
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

void bits12_pack_lines_plain(const Bits12Packing& packing) {
  const int window = packing.has_zero ? 15 : 16;
  for (std::int64_t line = 0; line < packing.lines; ++line) {
    std::byte* const to = packing.to + line * Bits12Shape::line_bytes;
    std::memset(to, 0, Bits12Shape::line_bytes);
    auto& unknown = packing.unknown[line] = {};
    for (int i = 0; i < 128; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, packing.from + line * bf16_line_bytes + bits12_place(i) * 2, sizeof(bits));
      const int exponent = bits >> 7 & 255;
      int code = exponent - packing.first;
      if (packing.has_zero && exponent == 0) {
        code = 15;
      } else if (code < 0 || code >= window) {
        code = 0;
        unknown[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << i % 64;
      }
      to[i] = static_cast<std::byte>((bits >> 8 & 0x80) | (bits & 0x7f));
      to[128 + i % 64] |= static_cast<std::byte>(code << i / 64 * 4);
    }
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

void (*bits12_pack_lines(Isa isa))(const Bits12Packing&) {
  switch (isa) {
    case Isa::avx512:
      return bits12_pack_lines_avx512;
    case Isa::avx2:
      return bits12_pack_lines_avx2;
    case Isa::plain:
      break;
  }
  return bits12_pack_lines_plain;
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
