#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/routes.h"

namespace hyb::kernels {
namespace {

/// Logits past the row's end are -infinity.
[[gnu::always_inline]] inline Vec load_or_least(const float* p, Full) { return load(p); }
[[gnu::always_inline]] inline Vec load_or_least(const float* p, Part part) {
  alignas(64) float all[lanes];
  store(all, broadcast(-__builtin_inff()));
  store(all, load(p, part), part);
  return load(all);
}

/// The value first, then its index: comparing is cheaper than carrying indices along.
LargestLogit find_largest(const float* logits, std::int32_t count) {
  Vec best = broadcast(-__builtin_inff()), other = best;
  Mask nan = none();
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const Vec a = load(logits + i), b = load(logits + i + lanes);
    nan = either(nan, either(not_a_number(a), not_a_number(b)));
    best = larger(a, best);
    other = larger(b, other);
  }
  each_vector(count - i, [&](std::int64_t j, auto part) {
    const Vec a = load_or_least(logits + i + j, part);
    nan = either(nan, not_a_number(a));
    best = larger(a, best);
  });
  if (any(nan)) return {__builtin_nanf(""), 0, false};
  const float value = largest_of(larger(best, other));
  std::int32_t at = 0;
  while (at + lanes <= count && !any(equal(load(logits + at), broadcast(value)))) at += lanes;
  while (logits[at] != value) ++at;
  return {value, at, true};
}

/// Sums of 4096 weights in floats, those in doubles.
double weigh(const LogitWeights& job) {
  constexpr std::int64_t chunk = 4096;
  const Vec largest = broadcast(job.largest), inverse = broadcast(job.inverse_temperature);
  const Vec floor = broadcast(job.floor);
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < job.count; begin += chunk) {
    const std::int64_t left = job.count - begin;
    Vec part_sum = zeros();
    each_vector(left < chunk ? left : chunk, [&](std::int64_t i, auto part) {
      const Vec logit = load_or_least(job.logits + begin + i, part);
      Vec weight = exp((logit - largest) * inverse);
      weight = select(weight, less(weight, floor), zeros());
      if (job.weights != nullptr) store(job.weights + begin + i, weight, part);
      part_sum = part_sum + weight;
    });
    sum += static_cast<double>(sum_of(part_sum));
  }
  return sum;
}

}  // namespace

template <>
LargestLogit largest_logit<vector_isa>(const float* logits, std::int32_t count) {
  return find_largest(logits, count);
}

template <>
double weigh_logits<vector_isa>(const LogitWeights& job) {
  return weigh(job);
}

}  // namespace hyb::kernels
