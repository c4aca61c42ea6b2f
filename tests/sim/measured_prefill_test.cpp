#include <doctest/doctest.h>

#include <chrono>
#include <vector>

#include "tests/sim/listener.h"
#include "tests/sim/toy_runner.h"

namespace measured_prefill_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

using Time = std::chrono::steady_clock::time_point;

/// A toy runner on a machine that takes a known time for each step: something per step, something
/// per token, and attention's square.
class TimedRunner : public Runner {
 public:
  explicit TimedRunner(const Capacity& capacity) : toy_(capacity, {}) {}

  Capacity capacity() const override { return toy_.capacity(); }
  StepResult run(const Step& step) override {
    double seconds = per_step;
    for (const Span& span : step.spans) {
      const auto length = span.position + static_cast<std::int32_t>(span.tokens.size());
      seconds += cost.of(length) - cost.of(span.position);
    }
    now += std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
    return toy_.run(step);
  }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    toy_.read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    toy_.write(view, unit, bytes);
  }

  double per_step = 5e-3;
  PrefillCost cost = {.linear = 1e-3, .square = 2e-6};
  Time now{};

 private:
  ToyRunner toy_;
};

struct Fixture {
  explicit Fixture(bool measures)
      : runner({.memory = flat_layout({.pages = 2000,
                                       .slots = 40,
                                       .page_tokens = 4,
                                       .page_bytes = 1,
                                       .slot_bytes = 100}),
                .step_tokens = 80,
                .sequences_max = 16,
                .vocab = 16}),
        engine(runner, nullptr,
               {.length_max = 4000,
                .chunk_tokens = 64,
                .measures_prefill = measures,
                .now = [this] { return runner.now; },
                .audit = true}) {}

  /// Seconds to the end of a prompt of one token over and over.
  double run(std::int32_t tokens, std::int32_t token, std::int32_t from_end = 0) {
    Request request;
    request.prompt.assign(static_cast<std::size_t>(tokens), TokenId{token});
    request.max_tokens = 1;
    if (from_end > 0) request.message_ends = {tokens - from_end};
    const RequestId id = engine.submit(request, sink);
    while (!engine.idle()) engine.step();
    const Usage& usage = sink.find(id, 0)->completion->usage;
    return std::chrono::duration<double>(usage.prefill).count();
  }

  TimedRunner runner;
  Engine engine;
  Listener sink;
};

}  // namespace

TEST_SUITE("sim/measured_prefill") {
  TEST_CASE("the engine learns from its steps what a prompt costs that it has not seen") {
    Fixture fixture(true);
    fixture.run(1000, 1);
    fixture.run(200, 2);
    fixture.run(30, 3);
    fixture.run(1500, 4);
    const PrefillCost learned = fixture.engine.usage().cost;
    CHECK(learned.square > 0);
    CHECK(learned.of(2500) == doctest::Approx(fixture.run(2500, 5)).epsilon(0.05));
    CHECK(learned.of(300) == doctest::Approx(fixture.run(300, 6)).epsilon(0.05));

    Fixture told(false);
    told.run(1000, 1);
    CHECK(told.engine.usage().cost.of(1000) == default_prefill_cost.of(1000));
  }

  TEST_CASE("the learned cost decides what is evicted") {
    for (const bool measures : {false, true}) {
      CAPTURE(measures);
      Fixture fixture(measures);
      fixture.run(1200, 1, 100);  // of which the last 100 tokens have a snapshot above them
      fixture.run(300, 2);
      PrefixCache& prefixes = fixture.engine.prefixes();
      const std::vector<TokenId> deep(1201, TokenId{1}), shallow(301, TokenId{2});
      REQUIRE(prefixes.look_up(deep).resumable >= 1199);
      REQUIRE(prefixes.look_up(shallow).resumable >= 299);
      while (prefixes.look_up(deep).resumable >= 1199 &&
             prefixes.look_up(shallow).resumable >= 299) {
        REQUIRE(prefixes.evict());
      }
      CHECK((prefixes.look_up(deep).resumable >= 1199) == measures);
    }
  }
}

}  // namespace measured_prefill_test
