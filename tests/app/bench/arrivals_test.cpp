#include "app/bench/arrivals.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "app/bench/statistics.h"

using namespace hyb::app;
using doctest::Approx;

namespace {

Statistics gaps_of(double burstiness) {
  const std::vector<double> times = arrival_times(20'000, 4, burstiness, 17);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return statistics_of(gaps);
}

}  // namespace

TEST_SUITE("app/bench/arrivals") {
  TEST_CASE("requests ascend, and the last comes at count / rate") {
    for (const double burstiness : {0.2, 1.0, 5.0, static_cast<double>(INFINITY)}) {
      CAPTURE(burstiness);
      const std::vector<double> times = arrival_times(100, 8, burstiness, 3);
      CHECK(std::is_sorted(times.begin(), times.end()));
      CHECK(times.front() > 0);
      CHECK(times.back() == Approx(100.0 / 8));
      CHECK(times == arrival_times(100, 8, burstiness, 3));
    }
    CHECK(arrival_times(100, 8, 1, 3) != arrival_times(100, 8, 1, 4));
  }

  // A gamma distribution of shape k has a deviation of mean / sqrt(k).
  TEST_CASE("gaps spread as the burstiness says") {
    for (const double burstiness : {0.25, 1.0, 4.0}) {
      CAPTURE(burstiness);
      const Statistics gaps = gaps_of(burstiness);
      CHECK(gaps.mean == Approx(0.25).epsilon(0.01));
      CHECK(gaps.deviation == Approx(0.25 / std::sqrt(burstiness)).epsilon(0.05));
    }
    CHECK(gaps_of(INFINITY).deviation == Approx(0).epsilon(1e-6));
  }

  TEST_CASE("without a rate all come at once") {
    CHECK(arrival_times(3, INFINITY, 1, 1) == std::vector<double>{0, 0, 0});
    CHECK(arrival_times(0, 5, 1, 1).empty());
  }
}
