#include <cstdint>
#include <functional>

#include <doctest/doctest.h>

#include "core/engine/draft_policy.h"

namespace draft_policy_test {

using namespace hyb;

namespace {

const ArrivalOrder only{RequestId{1}, 0};

/// What came of many steps of one sequence that always has 7 drafts at hand.
struct Outcome {
  double seconds = 0;
  std::int64_t tokens = 0, drafts = 0, steps = 0;
  double slower_than(double plain_seconds) const {
    return seconds / (static_cast<double>(tokens) * plain_seconds);
  }
};

/// `right(step, i)`: whether draft i of the step is right where those before it are. `seconds`: of
/// a step with n rows.
Outcome run(DraftPolicy& policy, std::int64_t tokens,
            const std::function<bool(std::int64_t, std::int32_t)>& right,
            const std::function<double(std::int32_t)>& seconds) {
  Outcome outcome;
  while (outcome.tokens < tokens) {
    policy.plan(1, true);
    std::int32_t drafts = 0;
    if (policy.wanted(only) > 0) drafts = policy.choose(only, drafts_max);
    policy.add(only, drafts);
    std::int32_t accepted = 0;
    while (accepted < drafts && right(outcome.steps, accepted)) ++accepted;
    if (drafts > 0) policy.verified(only, drafts, accepted);
    const double time = seconds(1 + drafts);
    policy.ran({.sequences = 1, .drafts = drafts, .accepted = accepted, .seconds = time});
    outcome.seconds += time;
    outcome.tokens += 1 + accepted;
    outcome.drafts += drafts;
    ++outcome.steps;
  }
  return outcome;
}

bool never(std::int64_t, std::int32_t) { return false; }
bool always(std::int64_t, std::int32_t) { return true; }
double flat(std::int32_t) { return 1.0; }
double linear(std::int32_t rows) { return 0.1 + 0.9 * rows; }

}  // namespace

TEST_SUITE("core/engine/draft_policy") {
  TEST_CASE("a given number is kept to, rounded down to one of few") {
    DraftPolicy policy(5);
    policy.plan(3, false);
    CHECK(policy.wanted(only) == 5);
    CHECK(policy.choose(only, 7) == 5);
    CHECK(policy.choose(only, 4) == 3);
    CHECK(policy.choose(only, 2) == 1);
    CHECK(policy.choose(only, 0) == 0);
  }

  TEST_CASE("before a plain step was measured there are no drafts, nor beside prompts") {
    DraftPolicy policy(0);
    policy.plan(1, true);
    CHECK(policy.wanted(only) == 0);
    policy.ran({.sequences = 1, .seconds = 1.0});
    policy.plan(1, true);
    CHECK(policy.wanted(only) > 0);
    policy.plan(1, false);
    CHECK(policy.wanted(only) == 0);
    policy.plan(2, true);
    CHECK(policy.wanted(only) == 0);
  }

  TEST_CASE("right drafts are as many as may be, where rows cost nothing") {
    DraftPolicy policy(0);
    const Outcome outcome = run(policy, 4000, always, flat);
    CHECK(outcome.slower_than(1.0) < 0.15);
  }

  TEST_CASE("wrong drafts, or rows that cost as much as steps, lose at most two percent") {
    for (const auto& seconds :
         {flat, linear, +[](std::int32_t rows) { return 1.0 + 0.3 * rows; }}) {
      for (const auto& right : {never, always, +[](std::int64_t step, std::int32_t i) {
                                  return (step * 7 + i * 3) % 10 < 3;
                                }}) {
        DraftPolicy policy(0);
        const Outcome outcome = run(policy, 400, right, seconds);
        CHECK(outcome.slower_than(seconds(1)) <= 1.02);
      }
    }
  }

  TEST_CASE("what is right at first and then no more is given up, and tried again later") {
    DraftPolicy policy(0);
    const auto right = [](std::int64_t step, std::int32_t) { return step < 200 || step > 1200; };
    const Outcome outcome = run(policy, 12000, right, flat);
    CHECK(outcome.slower_than(1.0) < 0.5);
  }

  TEST_CASE("a pause is as long however often wanted() is called") {
    for (const int times : {1, 3}) {
      CAPTURE(times);
      DraftPolicy policy(0);
      policy.ran({.sequences = 1, .seconds = 1.0});
      for (int misses = 0; misses < 2; ++misses) {
        policy.verified(only, 1, 0);
        policy.ran({.sequences = 1, .drafts = 1, .seconds = 1.0});
      }
      std::int32_t pause = 0;
      for (bool is_over = false; !is_over; pause += is_over ? 0 : 1) {
        policy.plan(1, true);
        for (int i = 0; i < times; ++i) is_over = policy.wanted(only) > 0;
        policy.ran({.sequences = 1, .seconds = 1.0});
      }
      CHECK(pause == 4);
    }
  }

  TEST_CASE("the number of drafts follows what they cost") {
    // Up to 4 rows are free, more cost as much as a step each: three drafts are best.
    DraftPolicy policy(0);
    const auto seconds = [](std::int32_t rows) { return rows <= 4 ? 1.0 : 1.0 + 1.5 * (rows - 4); };
    const Outcome outcome = run(policy, 20000, always, seconds);
    CHECK(outcome.slower_than(1.0) < 0.27);
  }
}

}  // namespace draft_policy_test
