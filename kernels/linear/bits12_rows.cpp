#include "kernels/linear/bits12_rows.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "kernels/floats.h"

namespace hyb::kernels {
namespace {

constexpr std::int64_t group_columns = 32;

/// A row of the source as bf16, with zeros up to whole halves.
void read_bf16(const WeightRow& row, std::span<std::uint16_t> out, std::int64_t columns) {
  if (row.is_stored_as(DType::bf16)) {
    std::memcpy(out.data(), row.bytes, static_cast<std::size_t>(columns) * 2);
  } else {
    std::vector<float> numbers(static_cast<std::size_t>(columns));
    read_numbers(row, 0, numbers);
    for (std::size_t k = 0; k < numbers.size(); ++k) out[k] = to_bf16(numbers[k]).bits;
  }
}

/// The first of the 16 neighbouring exponents that most weights have.
std::uint16_t choose_base(std::span<const std::uint16_t> weights) {
  std::array<std::array<std::uint32_t, 256>, 4> counts{};  // neighbours are often equal
  for (std::size_t i = 0; i < weights.size(); ++i) ++counts[i % 4][weights[i] >> 7 & 255U];
  const auto count = [&](std::size_t e) {
    return counts[0][e] + counts[1][e] + counts[2][e] + counts[3][e];
  };
  std::uint32_t sum = 0;
  for (std::size_t e = 0; e < 16; ++e) sum += count(e);
  std::uint32_t most = sum;
  std::uint16_t base = 0;
  for (std::size_t first = 1; first <= 240; ++first) {
    sum += count(first + 15) - count(first - 1);
    if (sum <= most) continue;
    most = sum;
    base = static_cast<std::uint16_t>(first);
  }
  return base;
}

/// Writes eight weights; bit 2i of the answer is set where weight i's exponent has no code.
unsigned pack_eight(const std::uint16_t* weights, std::uint16_t base, std::byte* rest,
                    std::byte* codes) {
  const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
  const __m128i sign = _mm_and_si128(_mm_srli_epi16(w, 8), _mm_set1_epi16(0x80));
  const __m128i both = _mm_or_si128(sign, _mm_and_si128(w, _mm_set1_epi16(0x7f)));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(rest), _mm_packus_epi16(both, both));
  const __m128i exponents = _mm_and_si128(_mm_srli_epi16(w, 7), _mm_set1_epi16(0xff));
  const __m128i all = _mm_sub_epi16(exponents, _mm_set1_epi16(static_cast<short>(base)));
  const __m128i is_known = _mm_cmpeq_epi16(_mm_srli_epi16(all, 4), _mm_setzero_si128());
  __m128i words = _mm_mullo_epi16(_mm_and_si128(all, is_known),
                                  _mm_setr_epi16(1, 1, 16, 16, 256, 256, 4096, 4096));
  words = _mm_or_si128(words, _mm_srli_si128(words, 8));
  words = _mm_or_si128(words, _mm_srli_si128(words, 4));
  const int word = _mm_cvtsi128_si32(words);
  std::memcpy(codes, &word, sizeof(word));
  return ~static_cast<unsigned>(_mm_movemask_epi8(is_known)) & 0x5555U;
}

/// Numbers past the columns are zeros here, and need no patch.
Bits12RowHeader pack_row(std::span<const std::uint16_t> weights, std::int64_t columns,
                         std::byte* out, std::vector<std::uint32_t>& patches) {
  Bits12RowHeader header = {.base = choose_base(weights.first(static_cast<std::size_t>(columns))),
                            .first_patch = Bits12RowHeader::no_column,
                            .patches = 0};
  patches.clear();
  for (std::int64_t k = 0; k < std::ssize(weights); k += 8) {
    const std::int64_t group = k % Bits12RowsShape::half_columns / group_columns;
    const std::int64_t eight = k % group_columns / 8 * 2 + group;
    std::byte* const half = out + k / Bits12RowsShape::half_columns * Bits12RowsShape::half_bytes;
    unsigned unknown = pack_eight(weights.data() + k, header.base, half + eight * 8,
                                  half + Bits12RowsShape::codes_at + eight * 4);
    for (; unknown != 0; unknown &= unknown - 1) {
      const std::int64_t column = k + __builtin_ctz(unknown) / 2;
      if (column >= columns) break;
      patches.push_back(static_cast<std::uint32_t>(column) << 16 |
                        weights[static_cast<std::size_t>(column)]);
    }
  }
  if (patches.empty()) return header;
  header.first_patch = static_cast<std::uint16_t>(patches.front() >> 16);
  patches.push_back(bits12_no_patch);
  return header;
}

}  // namespace

Bits12Rows pack_bits12_rows(Queue& queue, const WeightSource& source) {
  const Bits12RowsShape shape = {source.rows, source.columns};
  require(source.columns <= Bits12RowsShape::columns_max, "12 bits: columns have 16 bits");
  constexpr std::int64_t rows_of_piece = 64;
  const std::int64_t rows = source.experts * source.rows;
  const std::int64_t count = (rows + rows_of_piece - 1) / rows_of_piece;
  std::vector<std::vector<std::uint32_t>> patches(static_cast<std::size_t>(count));
  Bits12Rows packed = {.experts = std::vector<std::byte>(
                           static_cast<std::size_t>(source.experts * shape.expert_bytes())),
                       .patches = {},
                       .patched = 0};
  const auto header_of = [&](std::int64_t row) {
    return packed.experts.data() + row / source.rows * shape.expert_bytes() + shape.headers_at() +
           row % source.rows * static_cast<std::int64_t>(sizeof(Bits12RowHeader));
  };
  queue.share(count, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::uint16_t> weights(
        static_cast<std::size_t>(shape.halves() * Bits12RowsShape::half_columns));
    std::vector<std::uint32_t> of_row;
    for (std::int64_t piece = begin; piece < end; ++piece) {
      std::vector<std::uint32_t>& of_piece = patches[static_cast<std::size_t>(piece)];
      const std::int64_t last = std::min(rows, (piece + 1) * rows_of_piece);
      for (std::int64_t row = piece * rows_of_piece; row < last; ++row) {
        read_bf16(source.row(row), weights, source.columns);
        std::byte* const out = packed.experts.data() + row / source.rows * shape.expert_bytes() +
                               row % source.rows * shape.row_bytes();
        Bits12RowHeader header = pack_row(weights, source.columns, out, of_row);
        header.patches = static_cast<std::uint32_t>(of_piece.size());
        of_piece.insert(of_piece.end(), of_row.begin(), of_row.end());
        std::memcpy(header_of(row), &header, sizeof(header));
      }
    }
  });
  for (std::int64_t piece = 0; piece < count; ++piece) {
    const std::vector<std::uint32_t>& of_piece = patches[static_cast<std::size_t>(piece)];
    const auto before = static_cast<std::uint32_t>(packed.patches.size());
    packed.patches.insert(packed.patches.end(), of_piece.begin(), of_piece.end());
    packed.patched += std::ssize(of_piece);
    const std::int64_t last = std::min(rows, (piece + 1) * rows_of_piece);
    for (std::int64_t row = piece * rows_of_piece; row < last; ++row) {
      Bits12RowHeader header;
      std::memcpy(&header, header_of(row), sizeof(header));
      if (header.first_patch == Bits12RowHeader::no_column) continue;
      --packed.patched;  // the end of the row's list is none
      header.patches += before;
      std::memcpy(header_of(row), &header, sizeof(header));
    }
  }
  return packed;
}

}  // namespace hyb::kernels
