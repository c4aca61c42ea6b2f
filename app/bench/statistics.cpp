#include "app/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hyb::app {
namespace {

/// Sum of the squared distances from the mean.
double squares_of(std::span<const double> values, double mean) {
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares;
}

}  // namespace

Statistics statistics_of(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return {.mean = mean};
  return {.mean = mean, .deviation = std::sqrt(squares_of(values, mean) / (count - 1))};
}

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double share = place - static_cast<double>(below);
  return sorted[below] + share * (sorted[below + 1] - sorted[below]);
}

Distribution distribution_of(std::vector<double> values, std::span<const double> percentages) {
  std::sort(values.begin(), values.end());
  Distribution all;
  if (!values.empty()) {
    const auto count = static_cast<double>(values.size());
    all.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    all.deviation = std::sqrt(squares_of(values, all.mean) / count);
  }
  all.median = percentile(values, 50);
  for (const double percent : percentages) all.percentiles.push_back(percentile(values, percent));
  return all;
}

}  // namespace hyb::app
