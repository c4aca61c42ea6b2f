#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>

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
    policy.ran({.sequences = 1,
                .drafts = drafts,
                .accepted = accepted,
                .passes = drafts,
                .drafting_sequences = drafts > 0 ? 1 : 0,
                .seconds = time});
    outcome.seconds += time;
    outcome.tokens += 1 + accepted;
    outcome.drafts += drafts;
    ++outcome.steps;
  }
  return outcome;
}

/// Sequences that run some at a time, beside each other, with a drafter that takes time. Seconds
/// are of plain steps, what the host does included; the times of steps vary by some percent.
struct Load {
  std::int32_t sequences;  ///< in all
  std::int32_t at_once;
  std::int64_t tokens_each;
  double right_share;
  double row_seconds;         ///< of a step, for each draft
  double host_seconds;        ///< of a step that has drafts
  double pass_seconds;        ///< of the drafter, for each of the most drafts of a sequence
  double pass_row_seconds{};  ///< and for each draft
};

/// How much slower than plain steps.
double slower(const Load& load, unsigned seed) {
  DraftPolicy policy(0);
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<double>(random()) / 4294967296.0; };
  double seconds = 0;
  std::int64_t tokens = 0;
  for (std::int32_t first = 0; first < load.sequences; first += load.at_once) {
    const std::int64_t end = tokens + load.at_once * load.tokens_each;
    while (tokens < end) {
      policy.plan(load.at_once, true);
      DraftStep step = {.sequences = load.at_once};
      for (std::int32_t i = first; i < first + load.at_once; ++i) {
        const ArrivalOrder sequence{RequestId{i}, 0};
        const std::int32_t drafts =
            policy.wanted(sequence) > 0 ? policy.choose(sequence, drafts_max) : 0;
        policy.add(sequence, drafts);
        std::int32_t accepted = 0;
        while (accepted < drafts && uniform() < load.right_share) ++accepted;
        if (drafts > 0) policy.verified(sequence, drafts, accepted);
        step.drafts += drafts;
        step.accepted += accepted;
        step.passes = std::max(step.passes, drafts);
        step.drafting_sequences += drafts > 0 ? 1 : 0;
      }
      const double further = load.row_seconds * step.drafts;
      step.seconds =
          (1 + further + (step.drafts > 0 ? load.host_seconds : 0)) * (0.97 + 0.06 * uniform());
      step.drafting_seconds = load.pass_seconds * step.passes + load.pass_row_seconds * step.drafts;
      policy.ran(step);
      seconds += step.seconds + step.drafting_seconds;
      tokens += load.at_once + step.accepted;
    }
    for (std::int32_t i = first; i < first + load.at_once; ++i) {
      policy.forget({RequestId{i}, 0});
    }
  }
  return seconds * load.at_once / static_cast<double>(tokens);
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

  TEST_CASE("many sequences lose at most two percent in sixty steps, whatever is right") {
    for (const double right_share : {0.0, 0.2, 0.4, 0.6, 0.8}) {
      for (const double row_seconds : {0.0, 0.01, 0.03, 0.06}) {
        for (unsigned seed = 1; seed <= 20; ++seed) {
          CAPTURE(right_share);
          CAPTURE(row_seconds);
          CHECK(slower({16, 16, 64, right_share, row_seconds, 0, 0}, seed) <= 1.02);
        }
      }
    }
    CHECK(slower({16, 16, 64, 0.8, 0.01, 0, 0}, 1) < 0.6);
  }

  TEST_CASE("what drafts cost the host and the drafter loses at most two percent") {
    for (const double right_share : {0.0, 0.3, 0.6, 0.9}) {
      for (const double host_seconds : {0.0, 0.1, 0.5}) {
        for (const double pass_seconds : {0.0, 0.1, 0.3}) {
          for (unsigned seed = 1; seed <= 10; ++seed) {
            CAPTURE(right_share);
            CAPTURE(host_seconds);
            CAPTURE(pass_seconds);
            CAPTURE(seed);
            const Load together = {16, 16, 64, right_share, 0.03, host_seconds, pass_seconds, 0.01};
            CHECK(slower(together, seed) <= 1.02);
            const Load one_by_one = {100, 1, 24, right_share, 0.1, host_seconds, pass_seconds};
            CHECK(slower(one_by_one, seed) <= 1.02);
          }
        }
      }
    }
  }

  TEST_CASE("a pass of the drafter serves all sequences, so it pays where one alone would not") {
    for (const std::int32_t at_once : {1, 4, 8, 16}) {
      CAPTURE(at_once);
      const double pass_seconds = at_once == 1 ? 0.1 : 0.4;
      const Load load = {at_once, at_once, 4000, 0.9, 0.1 / at_once, 0, pass_seconds, 0.002};
      CHECK(slower(load, 1) < 0.9);
    }
  }

  TEST_CASE("a step that waited for drafts and got none has lost what it took longer") {
    DraftPolicy policy(0);
    std::int64_t held_back = 0;
    for (int step = 0; step < 1000; ++step) {
      policy.plan(1, true);
      const bool waits = policy.wanted(only) > 0;
      policy.ran({.sequences = 1, .is_held_back = waits, .seconds = waits ? 1.5 : 1.0});
      held_back += waits ? 1 : 0;
    }
    CHECK(held_back > 10);
    CHECK(held_back <= 14);  // a step and 0.5 %, half a second each
  }

  TEST_CASE("time in which no draft is found counts as lost") {
    DraftPolicy policy(0);
    std::int64_t asked = 0;
    for (int step = 0; step < 1000; ++step) {
      policy.plan(1, true);
      const bool asks = policy.wanted(only) > 0;
      policy.ran({.sequences = 1, .seconds = 1.0, .drafting_seconds = asks ? 0.5 : 0.0});
      asked += asks ? 1 : 0;
    }
    CHECK(asked > 10);
    CHECK(asked <= 14);  // a step and 0.5 %, half a second each
  }

  TEST_CASE(
      "preparing a sequence is paid for by its drafts, or no other one is prepared for long") {
    // Half of the drafts are right: `each` tokens of a sequence then take half the steps.
    const auto slower = [](double preparing, std::int64_t each, std::int32_t sequences) {
      DraftPolicy policy(0);
      double seconds = 0;
      std::int64_t tokens = 0;
      for (std::int32_t i = 0; i < sequences; ++i) {
        const ArrivalOrder sequence{RequestId{i}, 0};
        bool is_prepared = false;
        for (const std::int64_t end = tokens + each; tokens < end;) {
          policy.plan(1, true);
          const std::int32_t drafts =
              policy.wanted(sequence) > 0 ? std::min(1, policy.choose(sequence, 1)) : 0;
          policy.add(sequence, drafts);
          DraftStep step = {.sequences = 1,
                            .drafts = drafts,
                            .passes = drafts,
                            .drafting_sequences = drafts,
                            .seconds = 1.0};
          if (drafts > 0) {
            step.accepted = tokens % 2 == 0 ? 1 : 0;
            policy.verified(sequence, drafts, step.accepted);
            step.preparing_seconds = is_prepared ? 0 : preparing;
            is_prepared = true;
          }
          policy.ran(step);
          seconds += step.seconds + step.preparing_seconds;
          tokens += 1 + step.accepted;
        }
        policy.forget(sequence);
      }
      return seconds / static_cast<double>(tokens);
    };
    CHECK(slower(0, 100, 100) < 0.7);
    CHECK(slower(10, 100, 100) < 0.8);
    CHECK(slower(60, 100, 100) < 1.02);
    CHECK(slower(400, 100, 100) < 1.06);  // 4 of these are what one sequence loses
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
