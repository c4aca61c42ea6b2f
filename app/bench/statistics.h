#pragma once

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

/// What vLLM says of a latency; all 0 where there are no values.
struct Distribution {
  double mean = 0, median = 0;
  double deviation = 0;             ///< of these values alone: over n
  std::vector<double> percentiles;  ///< one per percentage asked for
};

Distribution distribution_of(std::vector<double> values, std::span<const double> percentages);

}  // namespace hyb::app
