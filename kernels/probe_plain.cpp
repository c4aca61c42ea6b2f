#include <emmintrin.h>

#include "kernels/probe_routes.h"

namespace hyb::kernels {
namespace {

/// Hides from the compiler that all sums, and all rounds, are alike.
void forget(__m128& value) { asm volatile("" : "+x"(value)); }

}  // namespace

std::uint64_t read_all_plain(const std::byte* bytes, std::size_t count) {
  __m128i seen[8] = {};
  for (std::size_t at = 0; at < count; at += 128) {
    for (int i = 0; i < 8; ++i) {
      const auto* const from = reinterpret_cast<const __m128i*>(bytes + at + i * 16);
      seen[i] = _mm_xor_si128(seen[i], _mm_loadu_si128(from));
    }
  }
  for (int i = 1; i < 8; ++i) seen[0] = _mm_xor_si128(seen[0], seen[i]);
  std::uint64_t words[2];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), seen[0]);
  return words[0] + words[1];
}

std::int64_t dot_f32_plain(std::int64_t rounds, float& sink) {
  constexpr int sums = 12;
  __m128 sum[sums] = {};
  __m128 x = _mm_set1_ps(1.0F), w = x;
  for (__m128& each : sum) forget(each);
  for (std::int64_t i = 0; i < rounds; ++i) {
    forget(x);
    forget(w);
#pragma GCC unroll 12
    for (int s = 0; s < sums; ++s) sum[s] = _mm_add_ps(sum[s], _mm_mul_ps(x, w));
  }
  float lanes[4];
  for (int s = 1; s < sums; ++s) sum[0] = _mm_add_ps(sum[0], sum[s]);
  _mm_storeu_ps(lanes, sum[0]);
  for (const float lane : lanes) sink += lane;
  return rounds * sums * 8;
}

}  // namespace hyb::kernels
