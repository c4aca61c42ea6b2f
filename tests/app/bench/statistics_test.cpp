#include "app/bench/statistics.h"

#include <doctest/doctest.h>

#include <vector>

using namespace hyb::app;

TEST_SUITE("app/bench/statistics") {
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
