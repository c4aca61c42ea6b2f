#include <doctest/doctest.h>

#include "app/replay/replay.h"
#include "app/replay/sglang_policy.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/traces.h"

namespace sglang_policy_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

PolicyOptions options(std::int64_t budget, double ratio, bool prompt_ends = false) {
  return {.kind = PolicyKind::sglang,
          .budget_bytes = budget,
          .ratio = ratio,
          .prompt_end_snapshots = prompt_ends};
}

}  // namespace

TEST_SUITE("app/replay/sglang_policy") {
  TEST_CASE("states are at turn ends, at branches on 64 tokens, and at prompt ends on demand") {
    for (const bool prompt_ends : {false, true}) {
      SglangPolicy policy(small_shape(), options(100000, 1, prompt_ends));
      const auto reused = [&](const ReplayRequest& request) {
        return policy.serve(RequestTokens(request)).reused;
      };
      CHECK(reused(request_of({{1, 300}}, {{2, 100}})) == 0);
      CHECK(reused(request_of({{1, 300}, {2, 100}, {3, 50}})) == 400);
      // Another answer: without a prompt-end state the branch is found and left for the next.
      CHECK(reused(request_of({{1, 300}, {4, 100}})) == (prompt_ends ? 256 : 0));
      CHECK(reused(request_of({{1, 300}, {5, 100}})) == 256);
      CHECK(reused(request_of({{1, 200}, {6, 100}})) == 0);
      CHECK(reused(request_of({{1, 200}, {7, 100}})) == 192);
      // One token is always left to draw from.
      CHECK(reused(request_of({{1, 300}, {2, 100}})) == 256);
    }
  }

  TEST_CASE("two pools: neither can take from the other") {
    // 111 bytes of states: one; 889 bytes of keys and values.
    SglangPolicy few_states(small_shape(), options(1000, 0.125));
    few_states.serve(RequestTokens(request_of({{1, 100}})));
    few_states.serve(RequestTokens(request_of({{2, 100}})));
    CHECK(few_states.counters().snapshot_bytes == 100);
    CHECK(few_states.counters().kv_bytes == 100);  // a leaf goes with its state
    // 900 bytes of states, 100 of keys and values.
    SglangPolicy few_keys(small_shape(), options(1000, 9));
    few_keys.serve(RequestTokens(request_of({{1, 60}})));
    few_keys.serve(RequestTokens(request_of({{2, 60}})));
    CHECK(few_keys.counters().kv_bytes == 60);
    CHECK(few_keys.counters().snapshot_bytes == 100);
    CHECK(few_keys.serve(RequestTokens(request_of({{1, 60}, {9, 5}}))).reused == 0);
    CHECK(few_keys.serve(RequestTokens(request_of({{1, 60}, {9, 5}, {8, 5}}))).reused == 65);
  }

  TEST_CASE("an inner node that loses its state keeps its keys") {
    SglangPolicy policy(small_shape(), options(1000, 0.26));  // two states
    policy.serve(RequestTokens(request_of({{1, 100}})));
    policy.serve(RequestTokens(request_of({{1, 100}, {2, 50}})));
    policy.serve(RequestTokens(request_of({{1, 100}, {2, 50}, {3, 50}})));
    CHECK(policy.counters().snapshot_bytes == 200);
    CHECK(policy.counters().kv_bytes == 200);
    const Served served = policy.serve(RequestTokens(request_of({{1, 100}, {4, 10}})));
    CHECK(served.reused == 0);
    CHECK(served.matched == 100);
  }

  TEST_CASE("the best split depends on the workload") {
    const auto best = [](const std::vector<ReplayRequest>& trace) {
      double best_ratio = 0, best_rate = -1;
      for (const double ratio : {0.1, 1.0, 10.0}) {
        const double rate = replay(trace, small_shape(400), options(8000, ratio)).hit_rate();
        if (rate > best_rate) {
          best_rate = rate;
          best_ratio = ratio;
        }
      }
      return best_ratio;
    };
    CHECK(best(random_trace(3, 400, 12, 20)) > best(random_trace(3, 400, 2, 2000)));
  }
}

}  // namespace sglang_policy_test
