#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/bits12.h"
#include "kernels/simd/avx512.h"

namespace hyb::kernels {
namespace {

/// Lines of a panel of 12 bits, one after the other, as four vectors of bf16.
class Bits12Lines {
 public:
  explicit Bits12Lines(const Bits12Tile& tile)
      : patch_(tile.patches),
        end_(tile.patches_end),
        line_(tile.panel + Bits12Shape::header_bytes + tile.first_line * Bits12Shape::line_bytes) {
    const __m128i exponents =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits12_header(tile.panel).exponents));
    high_ =
        _mm512_broadcast_i32x4(_mm_and_si128(_mm_srli_epi16(exponents, 1), _mm_set1_epi8(0x7f)));
    low_ = _mm512_broadcast_i32x4(_mm_and_si128(_mm_slli_epi16(exponents, 7), _mm_set1_epi8(-128)));
  }

  /// Lines from number `line`, which comes next, to one with patches; at most `most`.
  std::int64_t unpatched(std::int64_t line, std::int64_t most) const {
    const std::int64_t next = patch_ == end_ ? most : std::int64_t{patch_->line} - line;
    return next < most ? next : most;
  }

  /// A line without patches.
  inline __attribute__((always_inline)) void next(__m512i (&w)[4]) {
    const __m512i codes = _mm512_loadu_si512(line_ + 128);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i rest = _mm512_loadu_si512(line_ + h * 64);
      const __m512i code =
          _mm512_and_si512(h == 0 ? codes : _mm512_srli_epi16(codes, 4), _mm512_set1_epi8(15));
      constexpr int a_or_b_and_c = 0xf8;
      const __m512i high = _mm512_ternarylogic_epi32(_mm512_shuffle_epi8(high_, code), rest,
                                                     _mm512_set1_epi8(-128), a_or_b_and_c);
      const __m512i low = _mm512_ternarylogic_epi32(_mm512_shuffle_epi8(low_, code), rest,
                                                    _mm512_set1_epi8(0x7f), a_or_b_and_c);
      w[h * 2] = _mm512_unpacklo_epi8(low, high);
      w[h * 2 + 1] = _mm512_unpackhi_epi8(low, high);
    }
    line_ += Bits12Shape::line_bytes;
  }

  /// A line with some.
  __attribute__((noinline)) void next_patched(__m512i (&w)[4]) {
    next(w);
    alignas(64) std::uint16_t weights[128];
    for (int c = 0; c < 4; ++c) _mm512_store_si512(weights + c * 32, w[c]);
    for (const std::uint32_t line = patch_->line; patch_ != end_ && patch_->line == line;
         ++patch_) {
      weights[patch_->place] = patch_->bits;
    }
    for (int c = 0; c < 4; ++c) w[c] = _mm512_load_si512(weights + c * 32);
  }

  const std::byte* at() const { return line_; }

 private:
  const Bits12Patch* patch_;
  const Bits12Patch* end_;
  const std::byte* line_;
  __m512i high_, low_;
};

template <int R, bool Keeps>
void bits12_few(const Bits12Tile& tile) {
  __m512 sums[R][4];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sums[r][c] = tile.first ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.sums + r * 64 + c * 16);
    }
  }
  const std::byte* rows[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const std::byte*>(tile.rows[r]);
  std::byte* out = tile.lines;
  const auto multiply = [&](const __m512i(&w)[4], std::int64_t k, std::size_t bytes)
      __attribute__((always_inline)) {
    if constexpr (Keeps) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) _mm512_storeu_si512(out + c * 64, w[c]);
      out += 256;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      int pair = 0;
      __builtin_memcpy(&pair, rows[r] + k * 2, bytes);
      const __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        sums[r][c] = _mm512_dpbf16_ps(sums[r][c], reinterpret_cast<__m512bh>(w[c]),
                                      reinterpret_cast<__m512bh>(x));
      }
    }
  };
  Bits12Lines lines(tile);
  const std::int64_t pairs = tile.columns / 2;
  __m512i w[4];
  for (std::int64_t pair = 0;; ++pair) {
    for (std::int64_t left = lines.unpatched(tile.first_line + pair, pairs - pair); left > 0;
         --left, ++pair) {
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(lines.at()) + tile.ahead_bytes + i * 64,
                     _MM_HINT_T0);
      }
      lines.next(w);
      multiply(w, pair * 2, 4);
    }
    if (pair == pairs) break;
    lines.next_patched(w);
    multiply(w, pair * 2, 4);
  }
  if (tile.columns % 2 != 0) {  // what follows the last element is not ours
    if (lines.unpatched(tile.first_line + pairs, 1) == 0) {
      lines.next_patched(w);
    } else {
      lines.next(w);
    }
    multiply(w, tile.columns - 1, 2);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_storeu_ps(tile.sums + r * 64 + c * 16, sums[r][c]);
  }
}

template <bool Keeps>
constexpr void (*bits12_few_routes[])(const Bits12Tile&) = {
    bits12_few<1, Keeps>, bits12_few<2, Keeps>, bits12_few<3, Keeps>,
    bits12_few<4, Keeps>, bits12_few<5, Keeps>, bits12_few<6, Keeps>};

}  // namespace

void bits12_few_avx512(const Bits12Tile& tile) {
  const auto& routes = tile.lines == nullptr ? bits12_few_routes<false> : bits12_few_routes<true>;
  routes[tile.count - 1](tile);
}

void bits12_unpack_avx512(const Bits12Tile& tile) {
  Bits12Lines lines(tile);
  std::byte* out = tile.lines;
  const std::int64_t count = (tile.columns + 1) / 2;
  __m512i w[4];
  for (std::int64_t line = 0; line < count; ++line, out += 256) {
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(lines.at()) + tile.ahead_bytes + i * 64,
                   _MM_HINT_T0);
    }
    if (lines.unpatched(tile.first_line + line, 1) == 0) {
      lines.next_patched(w);
    } else {
      lines.next(w);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm512_storeu_si512(out + c * 64, w[c]);
  }
}

void bits12_pack_lines_avx512(const Bits12Packing& packing) {
  const __m512i first = _mm512_set1_epi8(static_cast<char>(packing.first));
  const __m512i most = _mm512_set1_epi8(packing.has_zero ? 14 : 15);
  const __m512i byte = _mm512_set1_epi16(0xff);
  const __mmask64 zeros_are_known = packing.has_zero ? ~__mmask64{0} : 0;
  const std::byte* from = packing.from;
  std::byte* to = packing.to;
  for (std::int64_t line = 0; line < packing.lines;
       ++line, from += 256, to += Bits12Shape::line_bytes) {
    __m512i codes[2];
    for (int h = 0; h < 2; ++h) {
      const __m512i a = _mm512_loadu_si512(from + h * 128);
      const __m512i b = _mm512_loadu_si512(from + h * 128 + 64);
      const auto rest_of = [](__m512i w) {
        constexpr int a_where_c_else_b = 0xe4;
        return _mm512_and_si512(
            _mm512_ternarylogic_epi32(w, _mm512_srli_epi16(w, 8), _mm512_set1_epi16(0x7f),
                                      a_where_c_else_b),
            _mm512_set1_epi16(0xff));
      };
      _mm512_storeu_si512(to + h * 64, _mm512_packus_epi16(rest_of(a), rest_of(b)));
      const __m512i exponents =
          _mm512_packus_epi16(_mm512_and_si512(_mm512_srli_epi16(a, 7), byte),
                              _mm512_and_si512(_mm512_srli_epi16(b, 7), byte));
      const __m512i code = _mm512_sub_epi8(exponents, first);
      const __mmask64 is_zero = _mm512_mask_testn_epi8_mask(zeros_are_known, exponents, exponents);
      const __mmask64 is_near = _mm512_cmple_epu8_mask(code, most);
      packing.unknown[line][static_cast<std::size_t>(h)] = ~(is_near | is_zero);
      codes[h] =
          _mm512_mask_mov_epi8(_mm512_maskz_mov_epi8(is_near, code), is_zero, _mm512_set1_epi8(15));
    }
    _mm512_storeu_si512(to + 128, _mm512_or_si512(codes[0], _mm512_slli_epi16(codes[1], 4)));
  }
}

}  // namespace hyb::kernels
