#pragma once

#include <immintrin.h>

#include "kernels/probe_loops.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {

std::uint64_t read_all_avx2(const std::byte* bytes, std::size_t count) {
  return read_words<__m256i>(bytes, count);
}

std::int64_t dot_f32_avx2(std::int64_t rounds, float& sink) {
  // The sums and the two operands are in 16 registers.
  return add_products<12, 16, __m256>(
      rounds, sink, _mm256_set1_ps(1.0F),
      [](__m256 sum, __m256 x, __m256 w) { return _mm256_fmadd_ps(x, w, sum); });
}

}  // namespace hyb::kernels
