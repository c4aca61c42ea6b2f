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
}
