#pragma once

#include <immintrin.h>

#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// As many sums as a tile of linear has.
constexpr int sums = 24;

/// Hides from the compiler that all sums, and all rounds, are alike.
template <typename Vector>
void forget(Vector& value) {
  asm volatile("" : "+v"(value));
}

float total_of(const __m512 (&sum)[sums]) {
  __m512 total = _mm512_setzero_ps();
  for (const __m512 each : sum) total = _mm512_add_ps(total, each);
  return _mm512_reduce_add_ps(total);
}

}  // namespace

std::uint64_t read_all_avx512(const std::byte* bytes, std::size_t count) {
  __m512i seen[8] = {};
  for (std::size_t at = 0; at < count; at += 512) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(bytes) + at + i * 64 + 4096, _MM_HINT_T0);
      seen[i] = _mm512_xor_si512(seen[i], _mm512_loadu_si512(bytes + at + i * 64));
    }
  }
  for (int i = 1; i < 8; ++i) seen[0] = _mm512_xor_si512(seen[0], seen[i]);
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(seen[0]));
}

std::int64_t dot_bf16_avx512(std::int64_t rounds, float& sink) {
  __m512 sum[sums] = {};
  __m512i x = _mm512_set1_epi32(0x3f803f80), w = x;
  for (__m512& each : sum) forget(each);
  for (std::int64_t i = 0; i < rounds; ++i) {
    forget(x);
    forget(w);
#pragma GCC unroll 24
    for (int s = 0; s < sums; ++s) {
      sum[s] =
          _mm512_dpbf16_ps(sum[s], reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
    }
  }
  sink += total_of(sum);
  return rounds * sums * 64;
}

std::int64_t dot_f32_avx512(std::int64_t rounds, float& sink) {
  __m512 sum[sums] = {};
  __m512 x = _mm512_set1_ps(1.0F), w = x;
  for (__m512& each : sum) forget(each);
  for (std::int64_t i = 0; i < rounds; ++i) {
    forget(x);
    forget(w);
#pragma GCC unroll 24
    for (int s = 0; s < sums; ++s) sum[s] = _mm512_fmadd_ps(x, w, sum[s]);
  }
  sink += total_of(sum);
  return rounds * sums * 32;
}

}  // namespace hyb::kernels
