#pragma once

#include <array>
#include <cstdint>
#include <numeric>

namespace hyb::kernels {

/// The mean of term(i) over a row, in as many sums as a register holds, so that no chain of
/// additions waits.
template <typename Term>
float mean_of(std::int64_t width, Term&& term) {
  constexpr std::size_t lanes = 16;
  std::array<float, lanes> sums{};
  std::int64_t i = 0;
  for (; i + std::ssize(sums) <= width; i += std::ssize(sums)) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += term(i + static_cast<std::int64_t>(lane));
    }
  }
  for (; i < width; ++i) sums[0] += term(i);
  return std::accumulate(sums.begin(), sums.end(), 0.0F) / static_cast<float>(width);
}

/// Holds, of a row: the mean, and the mean of the squared distances from it.
struct RowMoments {
  float mean, variance;
};

template <typename Value>
RowMoments moments_of(std::int64_t width, Value&& value) {
  const float mean = mean_of(width, value);
  const float variance = mean_of(width, [&](std::int64_t i) {
    const float centred = value(i) - mean;
    return centred * centred;
  });
  return {mean, variance};
}

}  // namespace hyb::kernels
