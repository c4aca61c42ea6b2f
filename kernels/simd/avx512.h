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

/// Vectors for files compiled for AVX-512; avx2.h has the same names for the narrower machine, so
/// that an op's vector body is written once. Everything is private to the file that includes it: a
/// shared inline function compiled for this machine must never be picked for another.
namespace hyb::kernels {
namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

constexpr Isa vector_isa = Isa::avx512;
constexpr int lanes = 16;
constexpr int registers = 32;

struct Vec {
  __m512 v;
};
using Mask = __mmask16;

/// Lanes that a load or store touches: all, or the first `count`.
struct Full {};
struct Part {
  explicit Part(std::int64_t count)
      : mask(static_cast<Mask>(count >= lanes ? 0xffffU : (1U << count) - 1U)) {}
  Mask mask;
};

inline Vec zeros() { return {_mm512_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
/// a * b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// The second argument where either is NaN.
inline Vec smaller(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec larger(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec absolute(Vec a) { return {_mm512_abs_ps(a.v)}; }
/// Returns, of two vectors without signs the larger, by bits: infinity is above all numbers, NaN
/// above it.
inline Vec larger_bits(Vec a, Vec b) {
  const __m512i bits = _mm512_max_epi32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v));
  return {_mm512_castsi512_ps(bits)};
}
inline Vec nearest(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// a * 2^n for whole n, also where the answer over- or underflows.
inline Vec times_power_of_two(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }

/// NaN is neither less nor greater.
inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
inline Mask greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
inline Mask not_a_number(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
inline Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
inline Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
inline Mask none() { return 0; }
inline bool any(Mask mask) { return mask != 0; }
/// b where the mask is set, else a.
inline Vec select(Vec a, Mask mask, Vec b) { return {_mm512_mask_blend_ps(mask, a.v, b.v)}; }

/// Asks for the line that holds *p; any address is harmless.
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
/// Into the second-level cache: of more than the first holds beside what is in use.
inline void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline Vec load(const float* p, Full = {}) { return {_mm512_loadu_ps(p)}; }
inline Vec load(const float* p, Part part) { return {_mm512_maskz_loadu_ps(part.mask, p)}; }
inline void store(float* p, Vec a, Full = {}) { _mm512_storeu_ps(p, a.v); }
inline void store(float* p, Vec a, Part part) { _mm512_mask_storeu_ps(p, part.mask, a.v); }

inline Vec widened(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline __m256i narrowed(Vec a) { return (__m256i)_mm512_cvtneps_pbh(a.v); }
/// Returns the value as it comes back from a bf16.
inline Vec rounded_to_bf16(Vec a) { return widened(narrowed(a)); }
inline Vec load(const bf16* p, Full = {}) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load(const bf16* p, Part part) {
  return widened(_mm256_maskz_loadu_epi16(part.mask, p));
}
inline void store(bf16* p, Vec a, Full = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(a));
}
inline void store(bf16* p, Vec a, Part part) {
  _mm256_mask_storeu_epi16(p, part.mask, narrowed(a));
}

/// -128 .. 127; a store rounds to nearest, ties to even.
inline Vec load(const std::int8_t* p, Full = {}) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline Vec load(const std::int8_t* p, Part part) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(part.mask, p)))};
}
inline void store(std::int8_t* p, Vec a, Full = {}) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
inline void store(std::int8_t* p, Vec a, Part part) {
  _mm_mask_storeu_epi8(p, part.mask, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

/// One lane of a sum of products: a float, or a pair of adjacent bf16.
template <typename T>
struct Unit;
template <>
struct Unit<float> {
  __m512 v;
};
template <>
struct Unit<bf16> {
  __m512i v;
};
inline Unit<float> load_units(const float* p, Full = {}) { return {_mm512_loadu_ps(p)}; }
inline Unit<float> load_units(const float* p, Part part) {
  return {_mm512_maskz_loadu_ps(part.mask, p)};
}
inline Unit<bf16> load_units(const bf16* p, Full = {}) { return {_mm512_loadu_si512(p)}; }
inline Unit<bf16> load_units(const bf16* p, Part part) {
  return {_mm512_maskz_loadu_epi32(part.mask, p)};
}
inline Unit<float> broadcast_unit(const float* p) { return {_mm512_set1_ps(*p)}; }
inline Unit<bf16> broadcast_unit(const bf16* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm512_set1_epi32(pair)};
}
/// The first of every pair, with a zero as the second.
inline Unit<bf16> first_of_pairs(Unit<bf16> a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(0xffff))};
}
inline Unit<bf16> second_of_pairs(Unit<bf16> a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(~0xffff))};
}
inline Vec dot(Vec sum, Unit<float> a, Unit<float> b) { return {_mm512_fmadd_ps(a.v, b.v, sum.v)}; }
inline Vec dot(Vec sum, Unit<bf16> a, Unit<bf16> b) {
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)a.v, (__m512bh)b.v)};
}

/// Lane i is the sum of the lanes of rows[i], every row added up in the same order.
inline Vec sums_of(const Vec* rows) {
  const auto pairs = [&](int i) {  // per 128 bits: a0+a2, b0+b2, a1+a3, b1+b3
    const __m512 a = rows[i].v, b = rows[i + 1].v;
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  };
  const auto fours = [&](int i) {  // per 128 bits: one sum of each of four rows
    const __m512d ab = _mm512_castps_pd(pairs(i)), cd = _mm512_castps_pd(pairs(i + 2));
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  };
  const auto eights = [&](int i) {
    const __m512 a = fours(i), b = fours(i + 4);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const __m512 a = eights(0), b = eights(8);
  return {_mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))};
}

inline float first_of(Vec a) { return _mm512_cvtss_f32(a.v); }
inline float sum_of(Vec a) { return _mm512_reduce_add_ps(a.v); }
inline float largest_of(Vec a) { return _mm512_reduce_max_ps(a.v); }
inline std::uint32_t largest_bits_of(Vec a) {
  return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(_mm512_castps_si512(a.v)));
}

#pragma GCC diagnostic pop

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
