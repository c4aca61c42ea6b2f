#include <doctest/doctest.h>

#include <algorithm>
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
    longest = std::max(longest, seconds);
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
  double longest = 0;  ///< of all steps
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

  TEST_CASE("steps of a request with a chunk time are as short, and its answer is the same") {
    using namespace std::chrono_literals;
    std::vector<TokenId> answers[2];
    for (const bool is_watched : {false, true}) {
      CAPTURE(is_watched);
      Fixture fixture(false);
      Request request;
      request.prompt.assign(1000, TokenId{3});
      for (std::size_t i = 0; i < 1000; i += 7) request.prompt[i] = TokenId{5};
      request.max_tokens = 8;
      if (is_watched) request.chunk_time = 40ms;
      const RequestId id = fixture.engine.submit(request, fixture.sink);
      std::int32_t progress = 0;
      while (!fixture.engine.idle()) {
        CHECK(fixture.engine.prompt_progress(id) >= progress);
        progress = fixture.engine.prompt_progress(id);
        fixture.engine.step();
        if (progress == 1000) break;
      }
      CHECK(progress == 1000);
      while (!fixture.engine.idle()) fixture.engine.step();
      CHECK(fixture.engine.prompt_progress(id) == 0);
      // A step's own measure is the one before it: with the square's growth it is a little longer.
      CHECK((fixture.runner.longest < 0.045) == is_watched);
      answers[is_watched ? 1 : 0] = fixture.sink.find(id, 0)->completion->tokens;
    }
    CHECK(answers[0].size() == 8);
    CHECK(answers[0] == answers[1]);
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
