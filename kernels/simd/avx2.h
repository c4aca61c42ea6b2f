#pragma once

// g++ 12 sees an uninitialized value inside of the intrinsics' own headers.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "kernels/floats.h"

/// Vectors for files compiled for AVX2 with FMA; see avx512.h, whose names these are.
namespace hyb::kernels {
namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

constexpr Isa vector_isa = Isa::avx2;
constexpr int lanes = 8;
constexpr int registers = 16;

struct Vec {
  __m256 v;
};
struct Mask {
  __m256 v;
};

struct Full {};
struct Part {
  explicit Part(std::int64_t wanted) : count(wanted >= lanes ? lanes : static_cast<int>(wanted)) {}
  __m256i mask() const {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  int count;
};

inline Vec zeros() { return {_mm256_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec smaller(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec larger(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec absolute(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.v)}; }
inline Vec larger_bits(Vec a, Vec b) {
  const __m256i bits = _mm256_max_epi32(_mm256_castps_si256(a.v), _mm256_castps_si256(b.v));
  return {_mm256_castsi256_ps(bits)};
}
inline Vec nearest(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// In two halves, so that neither factor leaves the range of exponents: |n| is at most 252.
inline Vec times_power_of_two(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, power(half)), power(_mm256_sub_epi32(whole, half)))};
}

inline Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask greater(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask not_a_number(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
inline Mask equal(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask either(Mask a, Mask b) { return {_mm256_or_ps(a.v, b.v)}; }
inline Mask none() { return {_mm256_setzero_ps()}; }
inline bool any(Mask mask) { return _mm256_movemask_ps(mask.v) != 0; }
inline Vec select(Vec a, Mask mask, Vec b) { return {_mm256_blendv_ps(a.v, b.v, mask.v)}; }

/// Asks for the line that holds *p; any address is harmless.
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
/// Into the second-level cache: of more than the first holds beside what is in use.
inline void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline Vec load(const float* p, Full = {}) { return {_mm256_loadu_ps(p)}; }
inline Vec load(const float* p, Part part) { return {_mm256_maskload_ps(p, part.mask())}; }
inline void store(float* p, Vec a, Full = {}) { _mm256_storeu_ps(p, a.v); }
inline void store(float* p, Vec a, Part part) { _mm256_maskstore_ps(p, part.mask(), a.v); }

inline Vec widened(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
/// The bits of a bf16 and 16 zeros. To nearest, ties to even; NaN stays NaN.
inline __m256i bf16_bits(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(not_a_number(a).v);
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, nan), _mm256_set1_epi32(~0xffff));
}
inline Vec rounded_to_bf16(Vec a) { return {_mm256_castsi256_ps(bf16_bits(a))}; }
inline __m128i narrowed(Vec a) {
  const __m256i both = _mm256_srli_epi32(bf16_bits(a), 16);
  const __m256i packed = _mm256_packus_epi32(both, both);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x88));
}
inline Vec load(const bf16* p, Full = {}) {
  return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec load(const bf16* p, Part part) {
  bf16 all[lanes] = {};
  for (int i = 0; i < part.count; ++i) all[i] = p[i];
  return load(all);
}
inline void store(bf16* p, Vec a, Full = {}) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrowed(a));
}
inline void store(bf16* p, Vec a, Part part) {
  bf16 all[lanes];
  store(all, a);
  for (int i = 0; i < part.count; ++i) p[i] = all[i];
}

inline Vec load(const std::int8_t* p, Full = {}) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}
inline Vec load(const std::int8_t* p, Part part) {
  std::int8_t all[lanes] = {};
  for (int i = 0; i < part.count; ++i) all[i] = p[i];
  return load(all);
}
inline void store(std::int8_t* p, Vec a, Full = {}) {
  const __m256i whole = _mm256_cvtps_epi32(a.v);
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
inline void store(std::int8_t* p, Vec a, Part part) {
  std::int8_t all[lanes];
  store(all, a);
  for (int i = 0; i < part.count; ++i) p[i] = all[i];
}

template <typename T>
struct Unit;
template <>
struct Unit<float> {
  __m256 v;
};
template <>
struct Unit<bf16> {
  __m256i v;
};
inline Unit<float> load_units(const float* p, Full = {}) { return {_mm256_loadu_ps(p)}; }
inline Unit<float> load_units(const float* p, Part part) {
  return {_mm256_maskload_ps(p, part.mask())};
}
inline Unit<bf16> load_units(const bf16* p, Full = {}) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline Unit<bf16> load_units(const bf16* p, Part part) {
  return {_mm256_maskload_epi32(reinterpret_cast<const int*>(p), part.mask())};
}
inline Unit<float> broadcast_unit(const float* p) { return {_mm256_set1_ps(*p)}; }
inline Unit<bf16> broadcast_unit(const bf16* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm256_set1_epi32(pair)};
}
inline Unit<bf16> first_of_pairs(Unit<bf16> a) {
  return {_mm256_and_si256(a.v, _mm256_set1_epi32(0xffff))};
}
inline Unit<bf16> second_of_pairs(Unit<bf16> a) {
  return {_mm256_and_si256(a.v, _mm256_set1_epi32(~0xffff))};
}
inline Vec dot(Vec sum, Unit<float> a, Unit<float> b) { return {_mm256_fmadd_ps(a.v, b.v, sum.v)}; }
inline Vec dot(Vec sum, Unit<bf16> a, Unit<bf16> b) {
  const auto first = [](Unit<bf16> u) { return _mm256_castsi256_ps(_mm256_slli_epi32(u.v, 16)); };
  const auto second = [](Unit<bf16> u) {
    return _mm256_castsi256_ps(_mm256_and_si256(u.v, _mm256_set1_epi32(~0xffff)));
  };
  return {_mm256_fmadd_ps(second(a), second(b), _mm256_fmadd_ps(first(a), first(b), sum.v))};
}

inline Vec sums_of(const Vec* rows) {
  const auto fours = [&](int i) {  // per 128 bits: one sum of each of four rows
    return _mm256_hadd_ps(_mm256_hadd_ps(rows[i].v, rows[i + 1].v),
                          _mm256_hadd_ps(rows[i + 2].v, rows[i + 3].v));
  };
  const __m256 a = fours(0), b = fours(4);
  return {_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))};
}

inline float first_of(Vec a) { return _mm256_cvtss_f32(a.v); }
inline float sum_of(Vec a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float largest_of(Vec a) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline std::uint32_t largest_bits_of(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(most));
}

#pragma GCC diagnostic pop

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
