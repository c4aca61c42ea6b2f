#include "app/bench/arrivals.h"

#include <cmath>
#include <random>

namespace hyb::app {

std::vector<double> arrival_times(std::size_t count, double rate, double burstiness,
                                  std::uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (count == 0 || std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(std::isinf(burstiness) ? 1.0 : burstiness, 1.0);
  double time = 0;
  for (double& one : times) one = time += std::isinf(burstiness) ? 1.0 : gap(random);
  const double scale = time > 0 ? static_cast<double>(count) / rate / time : 0;
  for (double& one : times) one *= scale;
  return times;
}

}  // namespace hyb::app
