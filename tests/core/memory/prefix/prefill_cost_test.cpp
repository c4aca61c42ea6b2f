#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/prefix/prefill_cost.h"

namespace prefill_cost_test {

using namespace hyb;

TEST_SUITE("core/memory/prefill_cost") {
  TEST_CASE("FLOPs become seconds") {
    const PrefillCost cost = prefill_seconds({6e9, 2e5}, 1e12);
    CHECK(cost.of(1000) == doctest::Approx((6e9 * 1e3 + 2e5 * 1e6) / 1e12));
    CHECK_THROWS_AS(prefill_seconds({0, 0}, 1e12), Error);
    CHECK_THROWS_AS(prefill_seconds({-1, 1}, 1e12), Error);
  }
}

namespace {

/// What a machine really takes.
struct Machine {
  double per_step = 0, per_token = 1e-3, per_position = 0;

  PrefillStep step(std::int64_t begin, std::int64_t tokens) const {
    const auto end = static_cast<double>(begin + tokens);
    const double positions = end * end - static_cast<double>(begin) * static_cast<double>(begin);
    const double seconds =
        per_step + per_token * static_cast<double>(tokens) + per_position * positions;
    return {.tokens = tokens, .positions = positions, .seconds = seconds};
  }

  /// From nothing, in chunks.
  double prompt(std::int64_t tokens, std::int64_t chunk) const {
    double seconds = 0;
    for (std::int64_t at = 0; at < tokens; at += chunk) {
      seconds += step(at, std::min(chunk, tokens - at)).seconds;
    }
    return seconds;
  }
};

constexpr PrefillCost linear = {.linear = 1e-4};

void run_prompt(PrefillMeter& meter, const Machine& machine, std::int64_t tokens,
                std::int64_t chunk) {
  for (std::int64_t at = 0; at < tokens; at += chunk) {
    meter.ran(machine.step(at, std::min(chunk, tokens - at)));
  }
}

}  // namespace

TEST_SUITE("core/memory/prefill_meter") {
  TEST_CASE("prompts longer than any that was measured are foretold") {
    for (const double per_position : {0.0, 1e-8, 5e-8, 1e-6}) {
      for (const double per_step : {0.0, 0.05}) {
        CAPTURE(per_position);
        CAPTURE(per_step);
        const Machine machine{.per_step = per_step, .per_position = per_position};
        PrefillMeter meter(linear, 512, 32768);
        run_prompt(meter, machine, 8000, 512);
        for (const std::int64_t tokens : {20, 60, 100, 300}) {
          run_prompt(meter, machine, tokens, 512);
        }
        REQUIRE(meter.cost());
        for (const std::int32_t length : {1024, 8192, 32768, 131072}) {
          CAPTURE(length);
          CHECK(meter.cost()->of(length) ==
                doctest::Approx(machine.prompt(length, 512)).epsilon(0.04));
        }
      }
    }
  }

  TEST_CASE(
      "noise of a quarter is averaged out, and a step that slept does not count as measured") {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> noise(0.75, 1.25);
    const Machine machine{.per_step = 0.02, .per_position = 1e-7};
    PrefillMeter meter(linear, 256, 32768);
    for (int round = 0; round < 40; ++round) {
      const std::int64_t tokens = 100 + static_cast<std::int64_t>(random() % 8000);
      for (std::int64_t at = 0; at < tokens; at += 256) {
        PrefillStep step = machine.step(at, std::min<std::int64_t>(256, tokens - at));
        step.seconds *= random() % 300 == 0 ? 1000 : noise(random);
        meter.ran(step);
      }
    }
    for (const std::int32_t length : {1000, 8000, 30000}) {
      CHECK(meter.cost()->of(length) == doctest::Approx(machine.prompt(length, 256)).epsilon(0.1));
    }
  }

  TEST_CASE("short prompts alone show the speed; the rest is as expected before") {
    const PrefillCost preset = {.linear = 1e-4, .square = 2e-9};
    const Machine machine{.per_token = 4e-4, .per_position = 8e-9};
    PrefillMeter meter(preset, 512, 32768);
    for (int i = 0; i < 20; ++i) meter.ran(machine.step(0, 100));
    CHECK(meter.cost()->of(32768) == doctest::Approx(4 * preset.of(32768)).epsilon(0.02));
  }

  TEST_CASE("a thousand short prompts do not outweigh the few long ones") {
    const Machine machine{.per_step = 0.05, .per_position = 1e-7};
    PrefillMeter meter(linear, 512, 32768);
    run_prompt(meter, machine, 16000, 512);
    for (int i = 0; i < 1000; ++i) meter.ran(machine.step(i % 7, 40));
    CHECK(meter.cost()->of(32768) == doctest::Approx(machine.prompt(32768, 512)).epsilon(0.04));
  }

  TEST_CASE("a machine that became slower is followed") {
    PrefillMeter meter(linear, 512, 32768);
    run_prompt(meter, {.per_token = 1e-3, .per_position = 1e-7}, 60000, 512);
    const Machine slower{.per_token = 3e-3, .per_position = 3e-7};
    for (int i = 0; i < 30; ++i) run_prompt(meter, slower, 60000, 512);
    CHECK(meter.cost()->of(32768) == doctest::Approx(slower.prompt(32768, 512)).epsilon(0.1));
  }

  TEST_CASE("whatever was measured, a longer prefix costs more") {
    std::mt19937 random(9);
    for (int round = 0; round < 300; ++round) {
      PrefillMeter meter(linear, 1 + static_cast<std::int32_t>(random() % 4096), 32768);
      for (std::size_t i = 0; i < 4 + random() % 20; ++i) {
        const auto tokens = static_cast<std::int64_t>(1 + random() % 5000);
        PrefillStep step = Machine{}.step(static_cast<std::int64_t>(random() % 100000), tokens);
        step.seconds = static_cast<double>(1 + random() % 1000000) * 1e-5;
        meter.ran(step);
      }
      const std::optional<PrefillCost> cost = meter.cost();
      if (!cost) continue;
      CHECK(cost->linear >= 0);
      CHECK(cost->square >= 0);
      CHECK(cost->of(1) > 0);
      CHECK(cost->of(100001) > cost->of(100000));
    }
  }

  TEST_CASE("little says nothing, and steps of no tokens or no time do not count") {
    PrefillMeter meter(linear, 512, 32768);
    meter.ran({.tokens = 0, .positions = 0, .seconds = 1});
    meter.ran({.tokens = 500, .positions = 250000, .seconds = 0});
    for (int i = 0; i < 3; ++i) meter.ran(Machine{}.step(0, 500));
    CHECK_FALSE(meter.cost());
    meter.ran(Machine{}.step(0, 500));
    CHECK(meter.cost());
    CHECK_THROWS_AS(PrefillMeter({.linear = 0}, 512, 32768), Error);
  }

  TEST_CASE("a cost far off is corrected at once, and then kept") {
    const Machine machine{.per_token = 2e-3, .per_position = 1e-6};
    PrefillMeter meter(linear, 256, 20000);
    // A chunk of a prompt, with three sequences that run one token each.
    const auto run = [&](std::int64_t position, double slower) {
      PrefillStep step = machine.step(position, 256);
      const PrefillStep one = machine.step(50, 1);
      step.tokens += 3;
      step.single = 3;
      step.positions += 3 * one.positions;
      step.seconds = slower * (step.seconds + 3 * one.seconds);
      return meter.ran(step);
    };
    std::optional<PrefillCost> last;
    int changes = 0;
    for (std::int64_t position = 0; position < 8192; position += 256) {
      const std::optional<PrefillCost> cost = run(position, 1);
      if (!cost) continue;
      last = cost;
      ++changes;
    }
    REQUIRE(last);
    CHECK(changes <= 4);
    for (const std::int32_t length : {1000, 8000, 20000}) {
      CHECK(last->of(length) == doctest::Approx(machine.prompt(length, length)).epsilon(0.1));
    }
    for (int i = 0; i < 500; ++i) CHECK_FALSE(run(i, i % 2 == 0 ? 0.95 : 1.05));
  }

  TEST_CASE("steps of few tokens, or of many single ones, say nothing") {
    PrefillMeter meter(linear, 256, 20000);
    for (int i = 0; i < 500; ++i) {
      CHECK_FALSE(meter.ran(Machine{}.step(i, 15)));
      PrefillStep many = Machine{}.step(i, 150);
      many.single = 50;
      CHECK_FALSE(meter.ran(many));
    }
    CHECK_FALSE(meter.cost());
  }
}

}  // namespace prefill_cost_test
