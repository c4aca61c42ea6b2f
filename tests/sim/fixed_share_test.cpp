#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/sim/fixture.h"

namespace hyb::sim::fixed_share_test {

namespace {

EngineOptions with_share(double share) {
  EngineOptions options = usual;
  options.state_share = share;
  return options;
}

}  // namespace

TEST_SUITE("sim/fixed_share") {
  TEST_CASE("with a fixed share every answer is right, owners are ordered once and never change") {
    for (const double share : {0.2, 0.5, 0.8}) {
      CAPTURE(share);
      Fixture fixture(elastic(20), with_share(share));
      const auto states = static_cast<std::int32_t>(20 * share);
      for (std::int32_t i = 0; i < 60; ++i) {
        const std::int32_t long_or_short = i / 15 % 2 == 0 ? 40 : 4;  // tokens
        fixture.submit(request_of(prompt_of(long_or_short, 6, i % 11), 12));
        if (i % 3 == 0) fixture.engine.step();
        const PoolUsage pool = fixture.engine.usage().pool;
        CHECK(pool.live_slots.units + pool.snapshot_slots.units <= 2 * states);
        CHECK(pool.pages[0].units <= 6 * (20 - states));
        CHECK(pool.total() == fixture.engine.pool().layout().bytes());
      }
      fixture.run();
      for (std::size_t i = 0; i < 60; ++i) fixture.completion(i);
      CHECK(fixture.engine.usage().pool.owner_changes == 0);
      CHECK(fixture.runner.owner_changes == 20);  // all at the start
      CHECK(fixture.engine.usage().deferrals > 0);
    }
  }

  TEST_CASE("after a failed step the owners that it may have lost are ordered again") {
    Fixture fixture(elastic(20), with_share(0.5));
    bool failed = false;
    fixture.runner.fails = [&] { return !std::exchange(failed, true); };
    fixture.submit(request_of(prompt_of(30)));
    CHECK_THROWS_AS(fixture.engine.step(), StepFailure);
    fixture.run();
    fixture.completion(0);
    CHECK(fixture.runner.owner_changes >= 20);
  }

  TEST_CASE("a fixed share limits the length of a sequence, and is refused out of range") {
    Fixture elastic_memory(elastic(20)), fixed(elastic(20), with_share(0.9));
    CHECK(fixed.engine.length_max() == 2 * 6 * 4);
    CHECK(elastic_memory.engine.length_max() > 8 * fixed.engine.length_max());
    CHECK_THROWS_AS(Fixture(elastic(20), with_share(1)), Error);
  }
}

}  // namespace hyb::sim::fixed_share_test
