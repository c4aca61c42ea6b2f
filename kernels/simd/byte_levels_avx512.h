#pragma once

#include <cstddef>

#include "kernels/fp8.h"
#include "kernels/simd/avx512.h"

namespace hyb::kernels {
namespace {

/// Looks codes of 8 bits up in a ByteLevels (linear/codes.h), whose highest bit is the sign.
/// byte_levels_avx2.h has the same names.
class ByteLookup {
 public:
  /// The bytes of a bf16 for every code.
  struct Both {
    __m512i low, high;
  };

  explicit ByteLookup(const void* table) {
    const auto* const bytes = static_cast<const std::byte*>(table);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) table_[i] = _mm512_loadu_si512(bytes + i * 64);
  }

  inline __attribute__((always_inline)) Both of(__m512i codes) const {
    const __m512i size = _mm512_permutex2var_epi8(table_[2], codes, table_[3]);
    return {_mm512_permutex2var_epi8(table_[0], codes, table_[1]),
            // size | (codes & 0x80)
            _mm512_ternarylogic_epi32(size, codes, _mm512_set1_epi8(-128), 0xf8)};
  }

  /// 32 codes of `a`, then 32 of `b`.
  inline __attribute__((always_inline)) void widen(const e4m3* a, const e4m3* b, bf16* to) const {
    const auto wide = [](const e4m3* from) {
      return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    };
    // Eights of a and b in turn: what is unpacked below comes out in order.
    const __m512i turns = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const Both levels = of(_mm512_permutex2var_epi64(wide(a), turns, wide(b)));
    _mm512_storeu_si512(to, _mm512_unpacklo_epi8(levels.low, levels.high));
    _mm512_storeu_si512(to + 32, _mm512_unpackhi_epi8(levels.low, levels.high));
  }

 private:
  __m512i table_[4];
};

}  // namespace
}  // namespace hyb::kernels
