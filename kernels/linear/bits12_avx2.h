#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "kernels/linear/bits12.h"
#include "kernels/linear/panel_tiles_avx2.h"
#include "kernels/simd/avx2.h"

namespace hyb::kernels {

namespace {

/// The bytes of a bf16 of each code.
struct Bits12Tables {
  __m256i high, low;

  explicit Bits12Tables(const std::byte* panel) {
    const __m128i exponents =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits12_header(panel).exponents));
    high = _mm256_broadcastsi128_si256(
        _mm_and_si128(_mm_srli_epi16(exponents, 1), _mm_set1_epi8(0x7f)));
    low = _mm256_broadcastsi128_si256(
        _mm_and_si128(_mm_slli_epi16(exponents, 7), _mm_set1_epi8(-128)));
  }
};

/// Reads half `h` of a line, lanes `part` and part + 1 of 128 bits: words 4 * h + part / 32, and
/// the second after it, of 8 outputs each.
inline __attribute__((always_inline)) void bits12_words(const Bits12Tables& tables,
                                                        const std::byte* line, int h, int part,
                                                        __m256i (&words)[2]) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 128 + part));
  const __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + h * 64 + part));
  const __m256i code =
      _mm256_and_si256(h == 0 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
  const __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(tables.high, code),
                                       _mm256_and_si256(rest, _mm256_set1_epi8(-128)));
  const __m256i low = _mm256_or_si256(_mm256_shuffle_epi8(tables.low, code),
                                      _mm256_and_si256(rest, _mm256_set1_epi8(0x7f)));
  words[0] = _mm256_unpacklo_epi8(low, high);
  words[1] = _mm256_unpackhi_epi8(low, high);
}

inline void bits12_prefetch(const std::byte* line, std::int64_t ahead_bytes) {
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(line) + ahead_bytes + i * 64, _MM_HINT_T0);
  }
}

/// Sums of R rows and half of the outputs, or of all with one row, over lines without patches.
template <int R>
struct Bits12Sums {
  static constexpr int halves = R == 1 ? 2 : 1;
  __m256 at[R][halves * 4];

  Bits12Sums(const float* home, bool first) {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < halves * 4; ++c) {
        at[r][c] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(home + r * 64 + c * 8);
      }
    }
  }
  void store(float* home) const {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < halves * 4; ++c) _mm256_storeu_ps(home + r * 64 + c * 8, at[r][c]);
    }
  }
  /// One line's word of 8 outputs: a column, then the other.
  inline __attribute__((always_inline)) void add(int c, __m256i word, const float* x) {
    const __m256 values[2] = {
        _mm256_castsi256_ps(_mm256_slli_epi32(word, 16)),
        _mm256_castsi256_ps(_mm256_and_si256(word, _mm256_set1_epi32(-65536)))};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
        const __m256 factor = _mm256_broadcast_ss(x + r * chunk_columns_max + i);
        at[r][c] = _mm256_fmadd_ps(factor, values[i], at[r][c]);
      }
    }
  }
};

/// Lines of a chunk whose rows are floats: [R][chunk_columns_max].
template <int R>
void bits12_multiply(const Bits12Tile& tile, const Bits12Tables& tables, const std::byte* line,
                     std::int64_t lines, const float* x, bool first) {
  constexpr int halves = Bits12Sums<R>::halves;
#pragma GCC unroll 2
  for (int pass = 0; pass < 2 / halves; ++pass) {
    Bits12Sums<R> sums(tile.sums + pass * 32, first);
    const std::byte* at = line;
    for (std::int64_t l = 0; l < lines; ++l, at += Bits12Shape::line_bytes) {
      if (pass == 0) bits12_prefetch(at, tile.ahead_bytes);
#pragma GCC unroll 2
      for (int h = 0; h < halves; ++h) {
#pragma GCC unroll 2
        for (int part = 0; part < 64; part += 32) {
          __m256i words[2];
          bits12_words(tables, at, pass + h, part, words);
          sums.add(h * 4 + part / 32, words[0], x + l * 2);
          sums.add(h * 4 + part / 32 + 2, words[1], x + l * 2);
        }
      }
    }
    sums.store(tile.sums + pass * 32);
  }
}

/// A line that has patches, from `patch` on: those of the next line follow.
template <int R>
const Bits12Patch* bits12_multiply_patched(const Bits12Tile& tile, const Bits12Tables& tables,
                                           const std::byte* line, const Bits12Patch* patch,
                                           const float* x, bool first) {
  constexpr int halves = Bits12Sums<R>::halves;
  alignas(32) std::uint16_t weights[128];
  auto* const words = reinterpret_cast<__m256i*>(weights);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 2
    for (int part = 0; part < 64; part += 32) {
      __m256i two[2];
      bits12_words(tables, line, h, part, two);
      _mm256_store_si256(words + h * 4 + part / 32, two[0]);
      _mm256_store_si256(words + h * 4 + part / 32 + 2, two[1]);
    }
  }
  for (const std::uint32_t number = patch->line; patch != tile.patches_end && patch->line == number;
       ++patch) {
    weights[patch->place] = patch->bits;
  }
  for (int pass = 0; pass < 2 / halves; ++pass) {
    Bits12Sums<R> sums(tile.sums + pass * 32, first);
#pragma GCC unroll 8
    for (int c = 0; c < halves * 4; ++c) {
      sums.add(c, _mm256_load_si256(words + pass * 4 + c), x);
    }
    sums.store(tile.sums + pass * 32);
  }
  return patch;
}

template <int R>
void bits12_few(const Bits12Tile& tile) {
  const Bits12Tables tables(tile.panel);
  const PanelTile rows_of_tile = {.rows = tile.rows,
                                  .count = tile.count,
                                  .panel = nullptr,
                                  .columns = tile.columns,
                                  .sums = nullptr,
                                  .first = false,
                                  .prefetch = nullptr,
                                  .prefetch_lines = 0};
  alignas(32) float x[R * chunk_columns_max];
  const Bits12Patch* patch = tile.patches;
  const std::byte* line =
      tile.panel + Bits12Shape::header_bytes + tile.first_line * Bits12Shape::line_bytes;
  bool first = tile.first;
  for (std::int64_t k = 0; k < tile.columns; k += chunk_columns_max) {
    const std::int64_t left = tile.columns - k;
    const std::int64_t columns = left < chunk_columns_max ? left : chunk_columns_max;
    for (int r = 0; r < R; ++r) {
      widen(rows_of_tile, r, k, columns, Format::bf16, x + r * chunk_columns_max);
    }
    const std::int64_t number = tile.first_line + k / 2, lines = (columns + 1) / 2;
    for (std::int64_t l = 0; l < lines;) {
      const bool has_patch = patch != tile.patches_end && patch->line < number + lines;
      const std::int64_t plain = has_patch ? std::int64_t{patch->line} - number : lines;
      if (l < plain) {
        bits12_multiply<R>(tile, tables, line, plain - l, x + l * 2, first);
        line += (plain - l) * Bits12Shape::line_bytes;
      } else {
        patch = bits12_multiply_patched<R>(tile, tables, line, patch, x + l * 2, first);
        line += Bits12Shape::line_bytes;
      }
      l = l < plain ? plain : l + 1;
      first = false;
    }
  }
}

constexpr void (*bits12_few_routes[])(const Bits12Tile&) = {bits12_few<1>, bits12_few<2>,
                                                            bits12_few<3>};
static_assert(std::size(bits12_few_routes) == bits12_few_rows_avx2);

}  // namespace

void bits12_few_avx2(const Bits12Tile& tile) { bits12_few_routes[tile.count - 1](tile); }

void bits12_unpack_avx2(const Bits12Tile& tile) {
  const Bits12Tables tables(tile.panel);
  const std::byte* line =
      tile.panel + Bits12Shape::header_bytes + tile.first_line * Bits12Shape::line_bytes;
  std::byte* out = tile.lines;
  const std::int64_t count = (tile.columns + 1) / 2;
  for (std::int64_t l = 0; l < count; ++l, line += Bits12Shape::line_bytes, out += line_bytes) {
    bits12_prefetch(line, tile.ahead_bytes);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 2
      for (int part = 0; part < 64; part += 32) {
        __m256i words[2];
        bits12_words(tables, line, h, part, words);
        auto* const to = reinterpret_cast<__m256i*>(out + h * 128 + part);
        _mm256_storeu_si256(to, words[0]);
        _mm256_storeu_si256(to + 2, words[1]);
      }
    }
  }
  for (const Bits12Patch* patch = tile.patches; patch != tile.patches_end; ++patch) {
    const std::int64_t l = std::int64_t{patch->line} - tile.first_line;
    std::memcpy(tile.lines + l * line_bytes + patch->place * 2, &patch->bits, sizeof(patch->bits));
  }
}

void bits12_pack_lines_avx2(const Bits12Packing& packing) {
  const __m256i first = _mm256_set1_epi8(static_cast<char>(packing.first));
  const __m256i most = _mm256_set1_epi8(packing.has_zero ? 14 : 15);
  const __m256i byte = _mm256_set1_epi16(0xff);
  const __m256i zeros_are_known = _mm256_set1_epi8(packing.has_zero ? -1 : 0);
  const std::byte* from = packing.from;
  std::byte* to = packing.to;
  const auto load = [](const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  };
  const auto store = [](std::byte* at, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), v);
  };
  const auto rest_of = [](__m256i w) {
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(w, 8), _mm256_set1_epi16(0x80)),
                           _mm256_and_si256(w, _mm256_set1_epi16(0x7f)));
  };
  for (std::int64_t line = 0; line < packing.lines;
       ++line, from += line_bytes, to += Bits12Shape::line_bytes) {
    auto& unknown = packing.unknown[line];
    unknown = {};
    for (int part = 0; part < 64; part += 32) {  // lanes 0 and 1 of 128 bits, then 2 and 3
      __m256i codes[2];
      for (int h = 0; h < 2; ++h) {
        const __m256i a = load(from + h * 128 + part);
        const __m256i b = load(from + h * 128 + 64 + part);
        store(to + h * 64 + part, _mm256_packus_epi16(rest_of(a), rest_of(b)));
        const __m256i exponents =
            _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(a, 7), byte),
                                _mm256_and_si256(_mm256_srli_epi16(b, 7), byte));
        const __m256i code = _mm256_sub_epi8(exponents, first);
        const __m256i is_near = _mm256_cmpeq_epi8(_mm256_min_epu8(code, most), code);
        const __m256i is_zero =
            _mm256_and_si256(zeros_are_known, _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256()));
        const auto known =
            static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_or_si256(is_near, is_zero)));
        unknown[static_cast<std::size_t>(h)] |= std::uint64_t{~known} << part;
        codes[h] = _mm256_or_si256(_mm256_and_si256(is_near, code),
                                   _mm256_and_si256(is_zero, _mm256_set1_epi8(15)));
      }
      store(to + 128 + part, _mm256_or_si256(codes[0], _mm256_slli_epi16(codes[1], 4)));
    }
  }
}

}  // namespace hyb::kernels
