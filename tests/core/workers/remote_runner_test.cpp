#include "core/workers/remote_runner.h"

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/error_text.h"
#include "tests/support/quiet_log.h"

namespace remote_runner_test {

using namespace hyb;
using namespace std::chrono_literals;
using hyb::testing::contains;
using hyb::testing::error_text;

namespace {

const WorkerIdentity same = {{"model", "this"}};
const Capacity small = {.memory = {}, .step_tokens = 8, .sequences_max = 2, .vocab = 50};

Received said(Message message) {
  return {.state = Received::State::message, .message = std::move(message)};
}
Received ended() { return {.state = Received::State::ended, .message = {}}; }

/// What the workers of a test do. Listening to one takes the time that it is listened for.
struct Script {
  std::deque<Received> says;   ///< of all workers; then nothing
  std::vector<Message> heard;  ///< by all
  int started = 0, given_up = 0;
  bool takes_steps = true;
  RemoteRunner::Clock::time_point now{1h};
};

class ScriptedWorker final : public Worker {
 public:
  explicit ScriptedWorker(Script& script) : script_(&script) { ++script.started; }
  bool send(const Message& message, std::chrono::milliseconds) override {
    if (!std::exchange(script_->takes_steps, true)) return false;
    script_->heard.push_back(message);
    return true;
  }
  Received receive(std::chrono::milliseconds patience) override {
    if (script_->says.empty()) {
      script_->now += patience;
      return {};
    }
    Received next = std::move(script_->says.front());
    script_->says.pop_front();
    return next;
  }
  std::string end() override {
    ++script_->given_up;
    return "signal 9";
  }

 private:
  Script* script_;
};

Message answer(std::uint64_t epoch, std::int32_t token) {
  StepResult result;
  result.sampled.emplace_back().token = TokenId{token};
  return result_message(epoch, result);
}

/// A runner on the script, whose first worker has said hello.
struct World {
  explicit World(const WorkerLimits& limits = {}) {
    script.says.push_back(said(hello_message(same)));
    runner =
        std::make_unique<RemoteRunner>([this] { return std::make_unique<ScriptedWorker>(script); },
                                       small, same, limits, [this] { return script.now; });
    step.spans.resize(1);
    step.spans[0].tokens = tokens;
  }

  void says(Message message) { script.says.push_back(said(std::move(message))); }
  std::string lost() {
    return error_text([&] { runner->wait(); });
  }

  testing::QuietLog quiet;
  Script script;
  std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}};
  Step step;
  std::unique_ptr<RemoteRunner> runner;
};

}  // namespace

TEST_SUITE("core/workers/remote_runner") {
  TEST_CASE("a step is sent, and its answer or error comes with wait()") {
    World world;
    RemoteRunner& runner = *world.runner;
    CHECK(runner.is_async());
    CHECK(runner.capacity().vocab == 50);
    runner.launch(world.step);
    CHECK_FALSE(runner.is_done());
    CHECK(contains(error_text([&] { runner.launch(world.step); }), "one step runs"));
    world.says(heartbeat_message(1));
    CHECK_FALSE(runner.is_done());
    world.says(answer(1, 7));
    CHECK(runner.is_done());
    CHECK(runner.wait().sampled.at(0).token == TokenId{7});
    CHECK(contains(error_text([&] { runner.wait(); }), "was launched"));
    CHECK(OwnedStep(world.script.heard.at(0)).step().spans[0].tokens.size() == 2);

    runner.launch(world.step);
    world.says(failure_message(2, ErrorKind::memory, "too little"));
    CHECK(world.lost() == "too little");
    CHECK(world.script.started == 1);
    CHECK(contains(error_text([&] { runner.read({}, 0, {}); }), "engine's own runner"));
    CHECK(contains(error_text([&] { runner.write({}, 0, {}); }), "engine's own runner"));
  }

  TEST_CASE("an answer to an earlier step changes nothing") {
    World world;
    for (const std::uint64_t epoch : {1, 2, 3}) {
      world.runner->launch(world.step);
      world.says(answer(epoch - 1, 5));
      world.says(failure_message(epoch + 1, ErrorKind::runtime, "of no step"));
      CHECK_FALSE(world.runner->is_done());
      world.says(answer(epoch, 7));
      CHECK(world.runner->wait().sampled.at(0).token == TokenId{7});
    }
  }

  TEST_CASE("a worker that ends, amid a step or before, is replaced") {
    World world;
    RemoteRunner& runner = *world.runner;
    runner.launch(world.step);
    world.script.says.push_back(ended());
    CHECK(runner.is_done());
    CHECK_THROWS_AS(runner.wait(), StepLost);
    CHECK(world.script.given_up == 1);
    CHECK(runner.deaths() == 1);

    world.says(heartbeat_message(0));
    world.says(hello_message(same));
    runner.launch(world.step);
    CHECK(world.script.started == 2);
    world.says(answer(2, 7));
    CHECK(runner.wait().sampled.size() == 1);

    world.script.takes_steps = false;  // it ended while there was nothing to do
    world.says(hello_message(same));
    world.says(answer(3, 8));
    CHECK(runner.run(world.step).sampled.at(0).token == TokenId{8});
    CHECK(world.script.started == 3);
    CHECK(runner.deaths() == 2);
  }

  TEST_CASE("a worker that says what is no message is given up") {
    World world;
    world.runner->launch(world.step);
    world.says(Message(30));
    CHECK(contains(world.lost(), "prefill worker: worker message: it begins with 00000000"));
    CHECK(world.script.given_up == 1);
  }

  TEST_CASE("a worker that gives no sign of life, or takes too long for a step, is given up") {
    World world({.silence = 10s, .step_factor = 20, .step_least = 30s});
    RemoteRunner& runner = *world.runner;
    runner.launch(world.step);
    CHECK(contains(world.lost(), "no sign of life for 10.1 s"));

    // Before a step has finished it takes what time it takes, if there are signs of life.
    const auto beats = [&](int seconds) {
      for (int i = 0; i < seconds; ++i) {
        world.script.now += 1s;
        world.says(heartbeat_message(0));
        CHECK_FALSE(runner.is_done());
      }
    };
    world.says(hello_message(same));
    runner.launch(world.step);
    beats(1000);
    world.script.now += 1s;
    world.says(answer(2, 7));
    CHECK(runner.wait().sampled.size() == 1);

    runner.launch(world.step);  // 20 times 1001 s for the same number of tokens
    beats(20'019);
    world.script.now += 2s;
    world.says(heartbeat_message(0));
    CHECK(runner.is_done());
    CHECK(contains(world.lost(), "a step of 2 tokens runs for more than 20020.0 s"));
  }

  TEST_CASE("many that end before they finish a step are an error") {
    World world({.deaths_in_a_row = 3});
    RemoteRunner& runner = *world.runner;
    const auto die_once = [&] {
      runner.launch(world.step);
      world.script.says.push_back(ended());
      CHECK_THROWS_AS(runner.wait(), StepLost);
      world.says(hello_message(same));
    };
    die_once();
    die_once();
    runner.launch(world.step);  // this one finishes
    world.says(answer(3, 7));
    runner.wait();
    die_once();
    die_once();
    runner.launch(world.step);
    world.script.says.push_back(ended());
    CHECK(contains(world.lost(), "it ended amid a step (signal 9); 3 in a row ended before"));

    // The next step starts afresh; two end before they are ready.
    for (int i = 0; i < 2; ++i) world.script.says.push_back(ended());
    world.says(hello_message(same));
    runner.launch(world.step);
    world.says(answer(7, 9));
    CHECK(runner.wait().sampled.at(0).token == TokenId{9});
  }

  TEST_CASE("what keeps a worker from being ready is an error") {
    const auto start = [](std::vector<Received> says) {
      Script script;
      for (Received& one : says) script.says.push_back(std::move(one));
      const testing::QuietLog quiet;
      return error_text([&] {
        RemoteRunner([&] { return std::make_unique<ScriptedWorker>(script); }, small, same,
                     {.silence = 10s, .deaths_in_a_row = 2}, [&] { return script.now; });
      });
    };
    CHECK(start({said(hello_message({{"model", "that"}}))}) ==
          "worker: its model is that, the engine's is this");
    CHECK(start({said(failure_message(0, ErrorKind::memory, "no room"))}) == "no room");
    CHECK(contains(start({ended(), ended()}), "ended before it was ready"));
    CHECK(contains(start({}), "silent before it is ready"));
    CHECK(contains(start({said(answer(0, 1))}), "of kind 3, not 1"));
  }
}

}  // namespace remote_runner_test
