#pragma once

#include <immintrin.h>

#include "kernels/probe_loops.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// A tile of linear has as many sums.
constexpr int probe_sums = 24;

}  // namespace

std::uint64_t read_all_avx512(const std::byte* bytes, std::size_t count) {
  return read_words<__m512i>(bytes, count);
}

std::int64_t dot_bf16_avx512(std::int64_t rounds, float& sink) {
  return add_products<probe_sums, 64, __m512>(
      rounds, sink, _mm512_set1_epi32(0x3f803f80), [](__m512 sum, __m512i x, __m512i w) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
      });
}

std::int64_t dot_f32_avx512(std::int64_t rounds, float& sink) {
  return add_products<probe_sums, 32, __m512>(
      rounds, sink, _mm512_set1_ps(1.0F),
      [](__m512 sum, __m512 x, __m512 w) { return _mm512_fmadd_ps(x, w, sum); });
}

}  // namespace hyb::kernels
