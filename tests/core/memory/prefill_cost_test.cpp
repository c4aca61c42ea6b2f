#include "core/memory/prefill_cost.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "core/base/error.h"

using namespace hyb;

TEST_SUITE("core/memory/prefill_cost") {
  TEST_CASE("exact samples give their cost back") {
    for (const double square : {0.0, 1e-9, 4e-8}) {
      const PrefillCost cost{.seconds_per_token = 3e-4, .seconds_per_token_squared = square};
      std::vector<PrefillSample> samples;
      for (const std::int32_t length : {64, 512, 4096, 32768}) {
        samples.push_back({length, cost.of(length)});
      }
      const PrefillCost fit = fit_prefill_cost(samples);
      CHECK(fit.seconds_per_token == doctest::Approx(3e-4));
      CHECK(fit.seconds_per_token_squared == doctest::Approx(square).epsilon(1e-6));
    }
  }

  TEST_CASE("noise of some percent is averaged out") {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> noise(0.95, 1.05);
    const PrefillCost cost{.seconds_per_token = 1e-3, .seconds_per_token_squared = 1e-7};
    std::vector<PrefillSample> samples;
    for (std::int32_t length = 100; length < 20000; length += 100) {
      samples.push_back({length, cost.of(length) * noise(random)});
    }
    const PrefillCost fit = fit_prefill_cost(samples);
    for (const std::int32_t length : {100, 5000, 20000}) {
      CHECK(fit.of(length) == doctest::Approx(cost.of(length)).epsilon(0.02));
    }
  }

  TEST_CASE("no term is negative, so more tokens never cost less") {
    const std::vector<PrefillSample> flat = {{100, 1.0}, {1000, 1.1}, {10000, 1.2}};
    const PrefillCost fit = fit_prefill_cost(flat);
    CHECK(fit.seconds_per_token > 0);
    CHECK(fit.seconds_per_token_squared == 0);
    const std::vector<PrefillSample> steep = {{100, 1e-6}, {1000, 1e-3}, {10000, 1.0}};
    const PrefillCost steep_fit = fit_prefill_cost(steep);
    CHECK(steep_fit.seconds_per_token == 0);
    CHECK(steep_fit.seconds_per_token_squared > 0);
  }

  TEST_CASE("one length gives the cost per token, none the default") {
    const std::vector<PrefillSample> one = {{1000, 2.0}, {1000, 2.0}};
    CHECK(fit_prefill_cost(one).of(1000) == doctest::Approx(2.0));
    CHECK(fit_prefill_cost(one).seconds_per_token_squared == 0);
    const std::vector<PrefillSample> broken = {{0, 1.0}, {10, 0.0}, {-4, 2.0}, {5, -1.0}};
    CHECK(fit_prefill_cost(broken).seconds_per_token == PrefillCost().seconds_per_token);
    CHECK(fit_prefill_cost({}).seconds_per_token == PrefillCost().seconds_per_token);
  }

  TEST_CASE("from FLOPs") {
    const PrefillCost cost = prefill_cost_of_flops(6e9, 2e5, 1e12);
    CHECK(cost.of(1000) == doctest::Approx((6e12 + 2e11) / 1e12));
    CHECK_THROWS_AS(prefill_cost_of_flops(0, 0), Error);
    CHECK_THROWS_AS(prefill_cost_of_flops(-1, 1), Error);
  }
}
