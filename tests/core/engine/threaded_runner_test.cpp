#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/threaded_runner.h"
#include "tests/sim/fixture.h"
#include "tests/support/error_text.h"

namespace threaded_runner_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

/// Its steps take a while, or fail.
class Slow final : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;
  StepResult run(const Step& step) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ran_on = std::this_thread::get_id();
    if (throws) throw Error(ErrorKind::memory, "no room on the other thread");
    StepResult result;
    for (const Span& span : step.spans) result.sampled.emplace_back().token = span.tokens[0];
    return result;
  }

  bool throws = false;
  std::thread::id ran_on;
};

Step step_of(const Tokens& tokens) {
  Step step;
  step.spans.resize(1);
  step.spans[0].tokens = tokens;
  return step;
}

}  // namespace

TEST_SUITE("core/engine/threaded_runner") {
  TEST_CASE("a step runs on another thread, and its result or error comes with wait()") {
    const ToyModel model;
    Slow slow(elastic(4), model);
    ThreadedRunner lane(slow);
    CHECK(lane.is_async());
    CHECK(lane.capacity().vocab == slow.capacity().vocab);
    const Tokens tokens = prompt_of(3);
    const Step step = step_of(tokens);
    for (int round = 0; round < 3; ++round) {
      slow.throws = round == 1;
      lane.launch(step);
      CHECK_FALSE(lane.is_done());
      CHECK(testing::contains(testing::error_text([&] { lane.launch(step); }), "one step runs"));
      while (!lane.is_done()) std::this_thread::yield();
      if (slow.throws) {
        CHECK(testing::contains(testing::error_text([&] { lane.wait(); }), "on the other thread"));
      } else {
        CHECK(lane.wait().sampled.at(0).token == tokens[0]);
      }
      CHECK(slow.ran_on != std::this_thread::get_id());
      CHECK(testing::contains(testing::error_text([&] { lane.wait(); }), "was launched"));
    }
    CHECK(lane.run(step).sampled.size() == 1);
  }

  TEST_CASE("a step that is not waited for has run when the lane is gone") {
    const ToyModel model;
    Slow slow(elastic(4), model);
    const Tokens tokens = prompt_of(3);
    const Step step = step_of(tokens);
    {
      ThreadedRunner lane(slow);
      lane.launch(step);
    }
    CHECK(slow.ran_on != std::thread::id());
  }
}

}  // namespace threaded_runner_test
