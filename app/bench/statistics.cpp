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

bool Distribution::can_tell(double percent) const {
  const double beyond = std::min(percent, 100 - percent);
  return beyond <= 0 || static_cast<double>(count) * beyond > 100 * (1 - 1e-9);
}

Distribution distribution_of(std::vector<double> values, std::span<const double> percentages) {
  std::sort(values.begin(), values.end());
  Distribution all = {.count = values.size()};
  if (!values.empty()) {
    const auto count = static_cast<double>(values.size());
    all.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    all.deviation = std::sqrt(squares_of(values, all.mean) / count);
  }
  all.median = percentile(values, 50);
  for (const double percent : percentages) all.percentiles.push_back(percentile(values, percent));
  return all;
}

namespace {

/// The continued fraction of I_x(a, b) without the factor before it (DLMF 8.17.22), by the modified
/// Lentz method; converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  constexpr int terms_max = 500;
  const auto not_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double numerator = 1;
  double denominator = 1 / not_zero(1 - (a + b) * x / (a + 1));
  double value = denominator;
  for (int m = 1; m <= terms_max; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      denominator = 1 / not_zero(1 + term * denominator);
      numerator = not_zero(1 + term / numerator);
      change = numerator * denominator;
      value *= change;
    }
    if (std::abs(change - 1) < 1e-14) break;
  }
  return value;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double factor = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                 a * std::log(x) + b * std::log1p(-x));
  const bool is_left = x < (a + 1) / (a + b + 2);
  return is_left ? factor * beta_fraction(a, b, x) / a
                 : 1 - factor * beta_fraction(b, a, 1 - x) / b;
}

std::optional<double> welch_p(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  const Statistics first = statistics_of(a), second = statistics_of(b);
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double u = first.deviation * first.deviation / n;
  const double v = second.deviation * second.deviation / m;
  const double distance = first.mean - second.mean;
  if (u + v == 0) return distance == 0 ? 1.0 : 0.0;
  const double t2 = distance * distance / (u + v);
  const double freedom = (u + v) * (u + v) / (u * u / (n - 1) + v * v / (m - 1));
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t2));
}

}  // namespace hyb::app
