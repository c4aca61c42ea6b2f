#pragma once

#include <optional>
#include <span>
#include <vector>

namespace hyb::app {

struct Statistics {
  double mean = 0;
  double deviation = 0;  ///< of a sample: over n - 1; 0 for less than two values
};

Statistics statistics_of(std::span<const double> values);

/// The value below which `percent` (0 to 100) of the values lie, between two of them in proportion
/// to the distance (numpy's default). `sorted` ascends; 0 where it is empty.
double percentile(std::span<const double> sorted, double percent);

/// Figures of a latency, as vLLM reports them; all 0 where there are no values.
struct Distribution {
  double mean = 0, median = 0;
  double deviation = 0;                  ///< of these values alone: over n
  std::vector<double> percentiles = {};  ///< one per requested percentage
  std::size_t count = 0;                 ///< of values

  /// True if at least one of the values lies beyond this percentile: P99 takes 100 of them.
  bool can_tell(double percent) const;
};

Distribution distribution_of(std::vector<double> values, std::span<const double> percentages);

/// Returns the probability of means at least this far apart if both samples come from distributions
/// of one mean (Welch's t-test, two-sided); nullopt where a sample has fewer than two values.
std::optional<double> welch_p(std::span<const double> a, std::span<const double> b);

/// The regularised incomplete beta function I_x(a, b), 0 <= x <= 1, to about 1e-10.
double incomplete_beta(double a, double b, double x);

}  // namespace hyb::app
