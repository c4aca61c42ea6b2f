#include "core/memory/prefill_cost.h"

#include <doctest/doctest.h>

#include "core/base/error.h"

using namespace hyb;

TEST_SUITE("core/memory/prefill_cost") {
  TEST_CASE("FLOPs become seconds") {
    const PrefillCost cost = prefill_cost_of_flops(6e9, 2e5, 1e12);
    CHECK(cost.of(1000) == doctest::Approx((6e9 * 1e3 + 2e5 * 1e6) / 1e12));
    CHECK_THROWS_AS(prefill_cost_of_flops(0, 0, 1e12), Error);
    CHECK_THROWS_AS(prefill_cost_of_flops(-1, 1, 1e12), Error);
  }
}
