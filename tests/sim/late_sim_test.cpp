#include <doctest/doctest.h>

#include "tests/sim/engine_scenario.h"
#include "tests/sim/seeds.h"

using namespace hyb;
using namespace hyb::sim;

TEST_SUITE("sim/late") {
  TEST_CASE("steps that run beside the host, at any pace, change no answer") {
    EngineCounts sum;
    const bool are_all = run_seeds(1500, [&](std::uint64_t seed) {
      const EngineCounts counts = run_late_scenario(seed);
      sum.steps += counts.steps;
      sum.steps_ahead += counts.steps_ahead;
      sum.dropped += counts.dropped;
      sum.refused += counts.refused;
      sum.answers += counts.answers;
      sum.cancelled += counts.cancelled;
      sum.failed_steps += counts.failed_steps;
      sum.sink_failures += counts.sink_failures;
      sum.reused += counts.reused;
      sum.preempted_tokens += counts.preempted_tokens;
      sum.hits += counts.hits;
    });
    MESSAGE("steps " << sum.steps << ", begun early " << sum.steps_ahead << ", prepared in vain "
                     << sum.dropped << ", not prepared " << sum.refused << ", answers "
                     << sum.answers << ", cancelled " << sum.cancelled << ", failed steps "
                     << sum.failed_steps << ", failed sinks " << sum.sink_failures << ", reused "
                     << sum.reused << ", preempted tokens " << sum.preempted_tokens << ", hits "
                     << sum.hits);
    if (!are_all) return;
    CHECK(sum.steps_ahead > 10'000);
    CHECK(sum.dropped > 300);
    CHECK(sum.refused > 300);
    CHECK(sum.cancelled > 300);
    CHECK(sum.failed_steps > 500);
    CHECK(sum.sink_failures > 100);
    CHECK(sum.reused > 10'000);
    CHECK(sum.hits > 1'000);
  }

  TEST_CASE("planted bugs are found") {
    for (const LateBug bug :
         {LateBug::delivered_twice, LateBug::token_lost, LateBug::rows_exchanged,
          LateBug::runs_unasked, LateBug::step_lost, LateBug::extra_token_kept}) {
      CAPTURE(name_of(bug));
      CHECK(any_seed_fails(300, [&](std::uint64_t seed) { run_late_scenario(seed, bug); }));
    }
  }
}
