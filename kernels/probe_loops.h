#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// The loops of probe.h, once for every instruction set's vectors.
namespace hyb::kernels {
namespace {

/// Hides from the compiler that all sums, and all rounds, are alike.
template <typename Vector>
[[gnu::always_inline]] inline void forget(Vector& value) {
  asm volatile("" : "+v"(value));
}

template <typename Words>
std::uint64_t read_words(const std::byte* bytes, std::size_t count) {
  constexpr int seen_count = 8, ahead = 4096;
  Words seen[seen_count] = {};
  for (std::size_t at = 0; at < count; at += sizeof seen) {
#pragma GCC unroll 8
    for (int i = 0; i < seen_count; ++i) {
      const std::byte* const from = bytes + at + static_cast<std::size_t>(i) * sizeof(Words);
      __builtin_prefetch(from + ahead);
      Words words;
      std::memcpy(&words, from, sizeof words);
      seen[i] ^= words;
    }
  }
  for (int i = 1; i < seen_count; ++i) seen[0] ^= seen[i];
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < sizeof(Words) / sizeof(std::uint64_t); ++i) {
    all += static_cast<std::uint64_t>(seen[0][i]);
  }
  return all;
}

/// Sums in registers, each add(sum, one, one) in every round, of `operations` multiplications and
/// additions.
template <int sums, int operations, typename Sum, typename Operand, typename Add>
std::int64_t add_products(std::int64_t rounds, float& sink, Operand one, const Add& add) {
  Sum sum[sums] = {};
  Operand x = one, w = one;
  for (Sum& each : sum) forget(each);
  for (std::int64_t i = 0; i < rounds; ++i) {
    forget(x);
    forget(w);
#pragma GCC unroll 24
    for (int s = 0; s < sums; ++s) sum[s] = add(sum[s], x, w);
  }
  for (int s = 1; s < sums; ++s) sum[0] += sum[s];
  for (std::size_t i = 0; i < sizeof(Sum) / sizeof(float); ++i) sink += sum[0][i];
  return rounds * sums * operations;
}

}  // namespace
}  // namespace hyb::kernels
