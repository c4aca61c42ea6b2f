#include <doctest/doctest.h>

#include "core/engine/engine_limits.h"
#include "tests/sim/fixture.h"
#include "tests/support/error_text.h"
#include "tests/support/quiet_log.h"

namespace engine_limits_test {

using namespace hyb;

namespace {

MemoryLayout layout_of(std::int32_t pages) {
  return flat_layout({.pages = pages, .slots = 2, .page_tokens = 4});
}

}  // namespace

TEST_SUITE("core/engine/engine_limits") {
  TEST_CASE("the requested length, or what the pool can ever hold") {
    for (const std::int32_t pages : {1, 2, 7, 100}) {
      const MemoryPool pool(layout_of(pages));
      const std::int32_t limit = length_limit(pool, 1000);
      CHECK(limit == 4 * pages);
      CHECK(pool.can_ever_hold(limit, 1));
      CHECK_FALSE(pool.can_ever_hold(limit + 1, 1));
      CHECK(length_limit(pool, limit - 1) == limit - 1);
    }
  }

  TEST_CASE("a prompt that memory is too small for is refused with the figures") {
    const MemoryPool pool(layout_of(7));
    CHECK_NOTHROW(check_fits(pool, 27, 28, 1000));
    CHECK_NOTHROW(
        check_fits(pool, 1000, 28, 1000));  // over the requested length: checked elsewhere
    const std::string text = testing::error_text([&] { check_fits(pool, 28, 28, 1000); });
    CHECK(testing::contains(text, "the prompt has 28 tokens"));
    CHECK(testing::contains(text, "enough for a prompt of 27 tokens"));
  }
}

using namespace hyb::sim;

namespace {

/// A runner of a prefill lane in all but its steps.
class SecondRunner final : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;
  bool is_async() const override { return is_threaded; }
  bool is_threaded = true;
};

/// Its steps run out of memory a given number of times.
class PoorRunner : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;

  StepResult run(const Step& step) override {
    for (const Order& order : step.orders) {
      const auto* const change = std::get_if<ChangeOwner>(&order);
      if (change != nullptr && change->to == no_view) ++superblocks_back;
    }
    if (failures > 0) {
      --failures;
      throw Error(ErrorKind::memory, "device: 7 bytes refused");
    }
    return ToyRunner::run(step);
  }
  void release_caches() override { ++times_given_way; }
  std::string holdings() const override { return "it holds 5 bytes"; }

  int failures = 0, times_given_way = 0, superblocks_back = 0;
};

struct Poor {
  explicit Poor(std::int32_t superblocks) : runner(elastic(superblocks), model) {}
  void submit(std::int32_t max_tokens = 6) {
    engine.submit(request_of(prompt_of(30), max_tokens), sink);
  }

  testing::QuietLog quiet;
  ToyModel model;
  PoorRunner runner;
  Engine engine{runner, nullptr, usual};
  Listener sink;
};

}  // namespace

TEST_SUITE("core/engine/memory_relief") {
  TEST_CASE("a prefill lane has the other one's model and memory, and asynchronous steps") {
    const ToyModel model;
    const Capacity capacity = elastic(8);
    const auto refusal = [&](const Capacity& other, bool is_threaded = true) {
      SecondRunner lane(other, model);
      lane.is_threaded = is_threaded;
      EngineOptions options = usual;
      options.prefill_lane = &lane;
      return testing::error_text([&] { check_engine(capacity, options); });
    };
    CHECK(refusal(capacity).empty());
    const std::string one_model = "both lanes have one model";
    const std::string one_memory = "both lanes have one memory";
    CHECK(testing::contains(refusal(capacity, false), one_model));
    const auto change = [&](const std::string& text, const auto& make_other) {
      Capacity other = capacity;
      make_other(other);
      CHECK(testing::contains(refusal(other), text));
    };
    change(one_model, [](Capacity& other) { ++other.step_tokens; });
    change(one_model, [](Capacity& other) { ++other.sequences_max; });
    change(one_model, [](Capacity& other) { ++other.step_spans; });
    change(one_model, [](Capacity& other) { ++other.step_samples; });
    change(one_model, [](Capacity& other) { ++other.vocab; });
    change(one_memory, [](Capacity& other) { ++other.memory.superblocks; });
    change(one_memory, [](Capacity& other) { ++other.memory.superblock_bytes; });
    change(one_memory, [](Capacity& other) { ++other.memory.page_tokens; });
    change(one_memory, [](Capacity& other) { ++other.memory.groups[0].pages_per_superblock; });
    change(one_memory, [](Capacity& other) { ++other.memory.slots.per_superblock; });
    change(one_memory,
           [](Capacity& other) { other.memory.groups.push_back(other.memory.groups[0]); });
  }

  TEST_CASE("a step that lacked memory runs again with smaller pools, to the same answer") {
    for (int steps = 0; steps < 7; ++steps) {
      CAPTURE(steps);
      Poor poor(40);
      poor.submit();
      for (int i = 0; i < steps; ++i) poor.engine.step();
      poor.runner.failures = 1;
      while (!poor.engine.idle()) poor.engine.step();
      const Completion& answer = *poor.sink.find(RequestId{0}, 0)->completion;
      CHECK(answer.tokens ==
            answer_of(poor.model, nullptr, 2000, request_of(prompt_of(30), 6), 0).tokens);
      CHECK(poor.runner.times_given_way == 1);
      CHECK(poor.runner.superblocks_back == 5);
      CHECK(poor.engine.pool().superblocks().uncommitted() == 5);
    }
  }

  TEST_CASE("when that did not help the error says what is held, and the engine lives") {
    Poor poor(40);
    poor.submit();
    poor.engine.step();
    poor.runner.failures = 2;
    const auto run = [&] {
      while (!poor.engine.idle()) poor.engine.step();
    };
    try {
      run();
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::memory);
      CHECK(std::string(error.what()) == "device: 7 bytes refused; it holds 5 bytes");
    }
    run();
    CHECK(poor.sink.find(RequestId{0}, 0)->completion->tokens.size() == 6);
  }

  TEST_CASE("pools that shrink again and again end what they cannot hold, and nothing else") {
    Poor poor(12);
    const std::int32_t length_max = poor.engine.length_max();
    poor.submit(400);
    poor.submit(6);
    int failures = 0;
    for (int steps = 0; !poor.engine.idle(); ++steps) {
      REQUIRE(steps < 10000);
      if (steps % 60 == 59) poor.runner.failures = 1;
      failures += poor.runner.failures;
      poor.engine.step();
    }
    CHECK(failures >= 3);
    const Completion& shortened = *poor.sink.find(RequestId{0}, 0)->completion;
    CHECK(shortened.reason == FinishReason::error);
    CHECK(shortened.error.find("took back") != std::string::npos);
    CHECK(shortened.tokens.size() > 100);
    CHECK(poor.sink.find(RequestId{1}, 0)->completion->tokens.size() == 6);
    CHECK(poor.engine.pool().all_free());

    // What is longer than the rest holds is refused at once.
    CHECK(poor.engine.length_max() < length_max);
    CHECK_THROWS_AS(poor.engine.submit(request_of(prompt_of(length_max - 2), 1), poor.sink), Error);
  }
}

}  // namespace engine_limits_test
