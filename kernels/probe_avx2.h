#pragma once

#include <immintrin.h>

#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// Hides from the compiler that all sums, and all rounds, are alike.
void forget(__m256& value) { asm volatile("" : "+x"(value)); }

}  // namespace

std::uint64_t read_all_avx2(const std::byte* bytes, std::size_t count) {
  __m256i seen[8] = {};
  for (std::size_t at = 0; at < count; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto* const from = reinterpret_cast<const __m256i*>(bytes + at + i * 32);
      seen[i] = _mm256_xor_si256(seen[i], _mm256_loadu_si256(from));
    }
  }
  std::uint64_t words[4], all = 0;
  for (int i = 1; i < 8; ++i) seen[0] = _mm256_xor_si256(seen[0], seen[i]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), seen[0]);
  for (const std::uint64_t word : words) all += word;
  return all;
}

std::int64_t dot_f32_avx2(std::int64_t rounds, float& sink) {
  constexpr int sums = 12;  // with the two operands in 16 registers
  __m256 sum[sums] = {};
  __m256 x = _mm256_set1_ps(1.0F), w = x;
  for (__m256& each : sum) forget(each);
  for (std::int64_t i = 0; i < rounds; ++i) {
    forget(x);
    forget(w);
#pragma GCC unroll 12
    for (int s = 0; s < sums; ++s) sum[s] = _mm256_fmadd_ps(x, w, sum[s]);
  }
  float lanes[8];
  for (int s = 1; s < sums; ++s) sum[0] = _mm256_add_ps(sum[0], sum[s]);
  _mm256_storeu_ps(lanes, sum[0]);
  for (const float lane : lanes) sink += lane;
  return rounds * sums * 16;
}

}  // namespace hyb::kernels
