#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/linear/bits12.h"
#include "kernels/simd/avx2.h"

namespace hyb::kernels {

void bits12_unpack_avx2(const Bits12Tile& tile) {
  constexpr std::int64_t ahead_bytes = 4096;
  const __m128i exponents =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits12_header(tile.panel).exponents));
  const __m256i highs =
      _mm256_broadcastsi128_si256(_mm_and_si128(_mm_srli_epi16(exponents, 1), _mm_set1_epi8(0x7f)));
  const __m256i lows =
      _mm256_broadcastsi128_si256(_mm_and_si128(_mm_slli_epi16(exponents, 7), _mm_set1_epi8(-128)));
  const std::byte* line =
      tile.panel + Bits12Shape::header_bytes + tile.first_line * Bits12Shape::line_bytes;
  std::byte* out = tile.lines;
  const std::int64_t count = (tile.columns + 1) / 2;
  for (std::int64_t l = 0; l < count; ++l, line += Bits12Shape::line_bytes, out += 256) {
    for (int i = 0; i < 3; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(line) + ahead_bytes + i * 64, _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int part = 0; part < 64; part += 32) {  // lanes 0 and 1 of 128 bits, then 2 and 3
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 128 + part));
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m256i rest =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + h * 64 + part));
        const __m256i code =
            _mm256_and_si256(h == 0 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
        const __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(highs, code),
                                             _mm256_and_si256(rest, _mm256_set1_epi8(-128)));
        const __m256i low = _mm256_or_si256(_mm256_shuffle_epi8(lows, code),
                                            _mm256_and_si256(rest, _mm256_set1_epi8(0x7f)));
        auto* const to = reinterpret_cast<__m256i*>(out + h * 128 + part);
        _mm256_storeu_si256(to, _mm256_unpacklo_epi8(low, high));
        _mm256_storeu_si256(to + 2, _mm256_unpackhi_epi8(low, high));
      }
    }
  }
  for (const Bits12Patch* patch = tile.patches; patch != tile.patches_end; ++patch) {
    const std::int64_t l = std::int64_t{patch->line} - tile.first_line;
    std::memcpy(tile.lines + l * 256 + patch->place * 2, &patch->bits, sizeof(patch->bits));
  }
}

}  // namespace hyb::kernels
