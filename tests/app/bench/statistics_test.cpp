#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "app/bench/statistics.h"

namespace statistics_test {

using namespace hyb::app;

TEST_SUITE("app/bench/statistics") {
  TEST_CASE("a percentile takes enough values for one to lie beyond it") {
    const auto can_tell = [](std::size_t count, double percent) {
      return Distribution{.count = count}.can_tell(percent);
    };
    CHECK_FALSE(can_tell(99, 99));
    CHECK(can_tell(100, 99));
    CHECK(can_tell(1000, 99.9));
    CHECK_FALSE(can_tell(999, 99.9));
    CHECK_FALSE(can_tell(19, 5));
    CHECK(can_tell(20, 5));
    CHECK(can_tell(1, 100));
    CHECK(distribution_of({1, 2, 3}, {}).count == 3);
  }

  TEST_CASE("mean and deviation of a sample") {
    const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
    CHECK(statistics_of(values).mean == 5);
    CHECK(statistics_of(values).deviation == doctest::Approx(2.13809).epsilon(1e-5));
  }

  TEST_CASE("one value has no deviation, none has no mean") {
    CHECK(statistics_of(std::vector<double>{3}).mean == 3);
    CHECK(statistics_of(std::vector<double>{3}).deviation == 0);
    CHECK(statistics_of({}).mean == 0);
  }

  TEST_CASE("a large offset does not drown the deviation") {
    const std::vector<double> values = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    CHECK(statistics_of(values).deviation == doctest::Approx(1));
  }

  TEST_CASE("percentiles lie between values, as numpy's do") {
    const std::vector<double> values = {10, 20, 40, 80};
    CHECK(percentile(values, 0) == 10);
    CHECK(percentile(values, 50) == 30);
    CHECK(percentile(values, 99) == doctest::Approx(78.8));
    CHECK(percentile(values, 100) == 80);
    CHECK(percentile(std::vector<double>{5}, 99) == 5);
    CHECK(percentile({}, 99) == 0);
  }

  TEST_CASE("a distribution: the order of the values does not matter") {
    const std::vector<double> percentages = {25, 75};
    const Distribution all = distribution_of({9, 4, 2, 5, 4, 5, 4, 7}, percentages);
    CHECK(all.mean == 5);
    CHECK(all.deviation == 2);
    CHECK(all.median == 4.5);
    CHECK(all.percentiles == std::vector<double>{4, 5.5});
    CHECK(distribution_of({}, percentages).percentiles == std::vector<double>{0, 0});
  }
}

using doctest::Approx;

TEST_SUITE("app/bench/significance") {
  TEST_CASE("the incomplete beta function where it is known") {
    for (const double x : {0.0, 0.1, 0.37, 0.5, 0.9, 1.0}) {
      CAPTURE(x);
      CHECK(incomplete_beta(1, 1, x) == Approx(x));
      CHECK(incomplete_beta(3, 1, x) == Approx(x * x * x));
      CHECK(incomplete_beta(1, 4, x) == Approx(1 - std::pow(1 - x, 4)));
      CHECK(incomplete_beta(0.5, 0.5, x) == Approx(2 / M_PI * std::asin(std::sqrt(x))));
      CHECK(incomplete_beta(2.5, 7, x) == Approx(1 - incomplete_beta(7, 2.5, 1 - x)));
    }
  }

  // Student's t of 4 degrees of freedom: 5 % lie beyond 2.776, 1 % beyond 4.604.
  TEST_CASE("p of equal variances is Student's") {
    const std::vector<double> a = {-1, 0, 1};
    const auto shifted = [&](double t) {
      const double by = t * std::sqrt(2.0 / 3);
      return std::vector<double>{by - 1, by, by + 1};
    };
    CHECK(*welch_p(a, shifted(2.776)) == Approx(0.05).epsilon(1e-3));
    CHECK(*welch_p(a, shifted(4.604)) == Approx(0.01).epsilon(1e-3));
    CHECK(*welch_p(a, shifted(0)) == Approx(1));
    CHECK(*welch_p(shifted(3), a) == Approx(*welch_p(a, shifted(3))));
  }

  TEST_CASE("too few values, and values without spread") {
    CHECK_FALSE(welch_p(std::vector<double>{1}, std::vector<double>{1, 2}));
    CHECK(*welch_p(std::vector<double>{1, 1}, std::vector<double>{1, 1}) == 1);
    CHECK(*welch_p(std::vector<double>{1, 1}, std::vector<double>{2, 2}) == 0);
  }
}

}  // namespace statistics_test
