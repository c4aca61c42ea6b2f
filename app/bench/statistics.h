#pragma once

#include <span>

namespace hyb::app {

struct Statistics {
  double mean = 0;
  double deviation = 0;  ///< of a sample: over n - 1; 0 for less than two values
};

Statistics statistics_of(std::span<const double> values);

}  // namespace hyb::app
