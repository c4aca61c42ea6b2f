#pragma once

#include <cstddef>

#include "kernels/fp8.h"
#include "kernels/simd/avx2.h"

namespace hyb::kernels {
namespace {

/// Looks codes of 8 bits up in a ByteLevels (linear/codes.h), whose highest bit is the sign: 8
/// tables of 16 bytes each for the low and the high bytes. byte_levels_avx512.h has the same names.
class ByteLookup {
 public:
  /// The bytes of a bf16 for every code.
  struct Both {
    __m256i low, high;
  };

  explicit ByteLookup(const void* table) : table_(static_cast<const std::byte*>(table)) {}

  Both of(__m256i codes) const {
    const __m256i sizes = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int i = 0; i < 8; ++i) {
      // 0x70 .. 0x7f for the sizes of this sixteen; all others have the highest bit and give 0
      const __m256i index =
          _mm256_adds_epu8(_mm256_sub_epi8(sizes, _mm256_set1_epi8(static_cast<char>(i * 16))),
                           _mm256_set1_epi8(0x70));
      low = _mm256_or_si256(low, _mm256_shuffle_epi8(sixteen(i), index));
      high = _mm256_or_si256(high, _mm256_shuffle_epi8(sixteen(8 + i), index));
    }
    return {low, _mm256_or_si256(high, _mm256_and_si256(codes, _mm256_set1_epi8(-128)))};
  }

  /// 32 codes of `a`, then 32 of `b`.
  void widen(const e4m3* a, const e4m3* b, bf16* to) const {
    widen(a, to);
    widen(b, to + 32);
  }

 private:
  void widen(const e4m3* from, bf16* to) const {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    // Eights 0, 2, 1, 3: what is unpacked below comes out in order.
    const Both levels = of(_mm256_permute4x64_epi64(codes, 0xd8));
    auto* const out = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(out, _mm256_unpacklo_epi8(levels.low, levels.high));
    _mm256_storeu_si256(out + 1, _mm256_unpackhi_epi8(levels.low, levels.high));
  }
  __m256i sixteen(int i) const {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(table_ + i * 16)));
  }
  const std::byte* table_;
};

}  // namespace
}  // namespace hyb::kernels
