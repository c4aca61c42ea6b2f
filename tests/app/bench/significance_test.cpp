#include "app/bench/significance.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace hyb::app;
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
