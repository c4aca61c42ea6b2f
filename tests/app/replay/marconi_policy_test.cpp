#include <doctest/doctest.h>

#include "app/replay/marconi_policy.h"
#include "app/replay/replay.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/traces.h"

namespace marconi_policy_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using Eviction = MarconiPolicy::Eviction;

namespace {

std::int32_t reused(CachePolicy& policy, const ReplayRequest& request) {
  return policy.serve(RequestTokens(request)).reused;
}

/// Many requests of one trace, which outlives the policy.
std::int64_t reused(CachePolicy& policy, const std::vector<ReplayRequest>& trace) {
  std::int64_t sum = 0;
  for (const ReplayRequest& request : trace) sum += reused(policy, request);
  return sum;
}

}  // namespace

TEST_SUITE("app/replay/marconi_policy") {
  TEST_CASE("two states per request: after its last token and where it branches off") {
    const ReplayRequest first = testing::request_of({{1, 300}}, {{2, 100}});
    const ReplayRequest branch = testing::request_of({{1, 200}, {3, 50}});
    const ReplayRequest again = testing::request_of({{1, 200}, {4, 50}});
    const ReplayRequest next = testing::request_of({{1, 300}, {2, 100}, {5, 1}});
    for (const Eviction eviction : {Eviction::leaf_lru, Eviction::flop_aware}) {
      MarconiPolicy policy(small_shape(), {.budget_bytes = 100000}, eviction);
      CHECK(reused(policy, first) == 0);
      CHECK(policy.counters().snapshots_created == 1);
      CHECK(reused(policy, branch) == 0);
      CHECK(policy.counters().snapshots_created == 3);
      CHECK(reused(policy, again) == 200);
      CHECK(reused(policy, next) == 400);
      CHECK(policy.counters().kv_bytes == 400 + 50 + 50 + 1);
      CHECK(policy.counters().snapshot_bytes == 5 * 100);
    }
  }

  TEST_CASE("the baseline gives up leaves; flop-aware also nodes with one child, keys kept") {
    const std::vector<ReplayRequest> turns = {testing::request_of({{1, 100}}),
                                              testing::request_of({{1, 100}, {2, 100}}),
                                              testing::request_of({{1, 100}, {2, 100}, {3, 100}})};
    const ReplayRequest other = testing::request_of({{9, 100}});
    const PolicyOptions options = {.budget_bytes = 600};
    MarconiPolicy lru(small_shape(), options, Eviction::leaf_lru);
    MarconiPolicy aware(small_shape(), options, 0.0);
    for (CachePolicy* policy :
         {static_cast<CachePolicy*>(&lru), static_cast<CachePolicy*>(&aware)}) {
      reused(*policy, turns);
      reused(*policy, other);
    }
    CHECK(reused(lru, turns[2]) == 200);    // the leaf went
    CHECK(reused(aware, turns[2]) == 300);  // two states above it went
  }

  TEST_CASE("a request larger than the budget leaves nothing and breaks nothing") {
    const std::vector<ReplayRequest> trace = {testing::request_of({{1, 100}}),
                                              testing::request_of({{2, 5000}}),
                                              testing::request_of({{1, 100}, {3, 1}})};
    for (const Eviction eviction : {Eviction::leaf_lru, Eviction::flop_aware}) {
      MarconiPolicy policy(small_shape(), {.budget_bytes = 1000}, eviction);
      reused(policy, trace);
      CHECK(policy.counters().kv_bytes == 101);
    }
  }

  TEST_CASE("alpha is the best of the grid on the requests seen, and is tuned once") {
    const auto trace = random_trace(5, 600, 12);
    const PolicyOptions options = {.budget_bytes = 4000};
    MarconiPolicy tuned(small_shape(), options, Eviction::flop_aware);
    std::size_t served = 0;
    while (tuned.counters().evictions == 0) reused(tuned, trace[served++]);
    const std::size_t window = 5 * served;
    REQUIRE(window < trace.size());
    while (served < window) reused(tuned, trace[served++]);
    CHECK(tuned.counters().alpha == 0.0);
    while (served < trace.size()) reused(tuned, trace[served++]);

    double best_alpha = -1;
    std::int64_t most = -1;
    for (int step = 0; step <= 20; ++step) {
      MarconiPolicy fixed(small_shape(), options, 0.1 * step);
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < window; ++i) sum += reused(fixed, trace[i]);
      if (sum > most) {
        most = sum;
        best_alpha = 0.1 * step;
      }
    }
    CHECK(tuned.counters().alpha == best_alpha);
  }

  TEST_CASE("a fixed alpha stays") {
    MarconiPolicy policy(small_shape(), {.budget_bytes = 2000}, 1.5);
    const auto trace = random_trace(6, 200, 6);
    reused(policy, trace);
    CHECK(policy.counters().alpha == 1.5);
  }
}

}  // namespace marconi_policy_test
