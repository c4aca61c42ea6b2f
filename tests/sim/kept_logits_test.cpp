#include <doctest/doctest.h>

#include <cstdint>

#include "tests/sim/fixture.h"

namespace kept_logits_test {

using namespace hyb;
using namespace hyb::sim;

TEST_SUITE("sim/kept_logits") {
  TEST_CASE("with its logits kept the same prompt again runs nothing, whatever the seed") {
    for (const bool recurrence : {true, false}) {
      CAPTURE(recurrence);
      Fixture fixture(recurrence ? flat(1000, 20) : flat(1000, 0), usual,
                      {.recurrence = recurrence});
      Request request = request_of(prompt_of(50), 6);
      request.keep_logits = true;
      fixture.ask(request);
      for (const std::int32_t most : {6, 1}) {
        for (int seed = 0; seed < 4; ++seed) {
          request.max_tokens = most;
          request.sampling.temperature = seed == 0 ? 0.0F : 1.0F;
          request.sampling.seed = static_cast<std::uint64_t>(seed);
          const std::int64_t steps = fixture.runner.steps;
          const Completion& again = fixture.ask(request);
          CHECK(again.usage.reused_tokens == 50);
          CHECK(again.usage.prefilled_tokens == 0);
          CHECK(again.usage.reuse_limit == ReuseLimit::nothing_left);
          CHECK(fixture.runner.steps == steps + most - 1);
        }
      }
      CHECK(fixture.runner.draws == 8);
      // Not for choices, which share the prompt anyway, nor for requests that leave nothing.
      request.choices = 2;
      fixture.ask(request);
      CHECK(fixture.runner.draws == 8);
      // The turn goes on from the same snapshot or a later one.
      request.choices = 1;
      request.max_tokens = 6;
      const Tokens answer = fixture.ask(request).tokens;
      const Request next = request_of(joined(joined(prompt_of(50), answer), prompt_of(0, 5, 1)));
      CHECK(fixture.ask(next).usage.reused_tokens == 55);
    }
  }

  TEST_CASE("logits are kept up to a limit, the newest") {
    EngineOptions options = usual;
    options.prefixes.logits_bytes_max = 3 * 16 * sizeof(float);
    Fixture fixture(flat(1000, 40), options);
    const auto ask = [&](std::int32_t who) {
      Request request = request_of(prompt_of(30, 10, who));
      request.keep_logits = true;
      return fixture.ask(request).usage.prefilled_tokens;
    };
    for (std::int32_t who = 1; who < 6; ++who) CHECK(ask(who) > 0);
    for (std::int32_t who = 5; who > 2; --who) CHECK(ask(who) == 0);
    CHECK(ask(1) > 0);
    fixture.engine.audit();
  }
}

}  // namespace kept_logits_test
