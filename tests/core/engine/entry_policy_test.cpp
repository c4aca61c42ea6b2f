#include <cstdint>
#include <functional>
#include <random>

#include <doctest/doctest.h>

#include "core/engine/entry_policy.h"

namespace entry_policy_test {

using namespace hyb;

namespace {

/// Sequences one after the other: a prompt that takes as long as some steps, then steps of a
/// second without entries. Entries take a share of what they are made beside.
struct Load {
  std::int32_t sequences;
  double prompt_seconds;
  std::int32_t steps;  ///< of each sequence
  double entry_share;
  /// Seconds that drafts save in a step of a sequence that has entries.
  std::function<double(std::int32_t sequence)> saved = [](std::int32_t) { return 0.0; };
};

struct Outcome {
  double seconds = 0, plain_seconds = 0, entry_seconds = 0;
  std::int32_t whole = 0;  ///< sequences that have all entries
  double slower() const { return seconds / plain_seconds; }
};

class Run {
 public:
  explicit Run(unsigned seed) : random_(seed) {}

  Outcome operator()(const Load& load) {
    Outcome outcome;
    for (std::int32_t i = 0; i < load.sequences; ++i) {
      bool is_whole = step(load, load.prompt_seconds, 0, false, outcome);
      for (std::int32_t at = 0; at < load.steps; ++at) {
        const double saved = is_whole && policy.wants_entries() ? load.saved(i) : 0;
        is_whole = step(load, 1, saved, true, outcome) && is_whole;
      }
      if (!is_whole) continue;
      policy.ended();
      ++outcome.whole;
    }
    return outcome;
  }

  EntryPolicy policy;

 private:
  /// Whether it has entries. Times vary by some percent.
  bool step(const Load& load, double plain, double saved, bool is_uniform, Outcome& outcome) {
    const bool has_entries = policy.wants_entries();
    const double noise = 0.97 + 0.06 * static_cast<double>(random_()) / 4294967296.0;
    const double entries = has_entries ? load.entry_share * plain * noise : 0;
    const double seconds = plain * noise - saved + entries;
    policy.ran({.seconds = seconds,
                .entry_seconds = entries,
                .lost_seconds = -saved,
                .is_uniform = is_uniform});
    outcome.seconds += seconds;
    outcome.plain_seconds += plain * noise;
    outcome.entry_seconds += entries;
    return has_entries;
  }

  std::mt19937 random_;
};

}  // namespace

TEST_SUITE("core/engine/entry_policy") {
  TEST_CASE("entries that take at most 1 % of the time are always there") {
    Run run(1);
    const Outcome outcome =
        run({.sequences = 2000, .prompt_seconds = 9, .steps = 40, .entry_share = 0.0095});
    CHECK(outcome.whole == 2000);
  }

  TEST_CASE("those that drafts do not save cost 1 % and a trial, prompts alone, too") {
    for (const double share : {0.02, 0.07, 0.3}) {
      for (const std::int32_t steps : {0, 1, 24, 400, 5000}) {
        CAPTURE(share);
        CAPTURE(steps);
        const Load load = {.sequences = steps > 400 ? 40 : 2000,
                           .prompt_seconds = 9,
                           .steps = steps,
                           .entry_share = share};
        const Outcome outcome = Run(2)(load);
        const double trial = share * (steps > 400 ? EntryPolicy::trial_steps + 9
                                                  : EntryPolicy::trial_sequences * (9 + steps));
        CHECK(outcome.entry_seconds < 0.0105 * outcome.plain_seconds + 1.05 * trial);
        if (steps <= 400) CHECK(outcome.whole >= EntryPolicy::trial_sequences);
      }
    }
  }

  TEST_CASE("those that drafts save are always there, whatever a prompt takes") {
    for (const double prompt : {0.0, 20.0, 100.0}) {
      Run run(3);
      const Outcome outcome = run({.sequences = 500,
                                   .prompt_seconds = prompt,
                                   .steps = 100,
                                   .entry_share = 0.07,
                                   .saved = [](std::int32_t) { return 0.3; }});
      CHECK(outcome.whole == 500);
      CHECK(outcome.slower() < 0.95);
    }
  }

  TEST_CASE("they come back where drafts save time later, and go where they no longer do") {
    Run run(4);
    const Load load = {.sequences = 3000,
                       .prompt_seconds = 9,
                       .steps = 24,
                       .entry_share = 0.07,
                       .saved = [](std::int32_t i) { return i < 1000 || i >= 2000 ? 0.0 : 0.4; }};
    const Outcome outcome = run(load);
    CHECK(outcome.whole > 1000);
    CHECK(outcome.whole < 1700);
    CHECK(outcome.slower() < 0.95);
    CHECK(!run.policy.wants_entries());
  }

  TEST_CASE("sequences that lack some entries count for no trial's end") {
    EntryPolicy policy;
    const auto step = [&](bool is_whole) {
      policy.ran({.seconds = 1, .entry_seconds = policy.wants_entries() ? 0.1 : 0});
      if (is_whole) policy.ended();
    };
    for (int i = 0; i < 100; ++i) step(false);
    CHECK(policy.wants_entries());
    for (std::int32_t i = 0; i < EntryPolicy::trial_sequences; ++i) step(true);
    step(false);
    CHECK(!policy.wants_entries());
  }
}

}  // namespace entry_policy_test
