#include <doctest/doctest.h>

#include "tests/cuda_emulator/emulator.h"
#include "tests/models/reuse_world.h"
#include "tests/models/verify_steps.h"

namespace decode_calls_test {

using namespace hyb;
using namespace hyb::models::testing;
using emulator::HostCalls;

namespace {

HostCalls sum(const HostCalls& a, const HostCalls& b) {
  return {.kernels = a.kernels + b.kernels,
          .graphs = a.graphs + b.graphs,
          .copies = a.copies + b.copies,
          .events = a.events + b.events,
          .waits = a.waits + b.waits,
          .waits_for_work = a.waits_for_work + b.waits_for_work};
}

/// Forwards all calls and counts what the host enqueues, by the call of the runner that it is part
/// of, and from elsewhere.
class Counting final : public Runner {
 public:
  Counting(Runner& runner, bool is_async) : runner_(&runner), is_async_(is_async) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return is_async_; }
  StepResult run(const Step& step) override {
    launch(step);
    return wait();
  }
  void launch(const Step& step) override {
    between += emulator_calls();
    runner_->launch(step);
    critical = sum(critical, emulator::take_host_calls());
    ++steps;
    ++running;
  }
  void prepare(const Step& next) override {
    runner_->prepare(next);
    hidden = sum(hidden, emulator::take_host_calls());
  }
  void launch_prepared() override {
    between += emulator_calls();
    runner_->launch_prepared();
    critical = sum(critical, emulator::take_host_calls());
    ++steps;
    if (++running == 2) ++overlapping;
  }
  StepResult wait() override {
    --running;
    StepResult result = runner_->wait();
    if (!is_over) waiting = sum(waiting, emulator::take_host_calls());
    return result;
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  HostCalls critical, hidden, waiting;
  std::int64_t between = 0;  ///< calls from elsewhere
  std::int64_t steps = 0;
  std::int64_t running = 0, overlapping = 0;  ///< launched while another step was running
  bool is_over = false;

 private:
  static std::int64_t emulator_calls() {
    const HostCalls calls = emulator::take_host_calls();
    return calls.kernels + calls.graphs + calls.copies + calls.events + calls.waits;
  }

  Runner* runner_;
  bool is_async_;
};

/// 20 decode steps of 4 sequences, on a model whose decode graph was recorded before.
void decode(ReuseFolder& folder, Counting& runner) {
  Answers answers;
  Engine engine(runner, nullptr,
                {.length_max = reuse_length_max, .sequences_max = 4, .chunk_tokens = 64});
  for (int i = 0; i < 4; ++i) {
    Request request;
    request.prompt = folder.draw(20);
    request.max_tokens = 60;
    request.sampling.temperature = 1.0F;
    engine.submit(std::move(request), answers);
  }
  for (int i = 0; i < 15; ++i) engine.step();
  emulator::take_host_calls();
  runner.critical = runner.hidden = runner.waiting = {};
  runner.between = runner.steps = runner.overlapping = 0;
  while (runner.steps < 20) engine.step();
  CHECK(engine.running() == 4);
  runner.is_over = true;  // the engine's end waits, too
}

HostCalls times(const HostCalls& calls, std::int64_t count) {
  HostCalls all;
  for (std::int64_t i = 0; i < count; ++i) all = sum(all, calls);
  return all;
}

}  // namespace

TEST_SUITE("cuda_emulator/decode_calls") {
  TEST_CASE("a decode step is one graph, launched while the one before runs, and waits once") {
    ReuseFolder folder("granite-dense-rope", kernels::Device::cuda);
    const auto life = folder.live({});
    Counting is_async(life->runner, true);
    decode(folder, is_async);
    // The graph; after it the copy of the ids and the event that says that they have arrived.
    CHECK(is_async.critical == times({.graphs = 1, .copies = 1, .events = 1}, 20));
    // Tables and sampling parameters are uploaded while the step before runs. The room that they
    // take is free as soon as the copies of the step before that one are done, which is so.
    CHECK(is_async.hidden == times({.copies = 2, .events = 2, .waits = 2}, 20));
    CHECK(is_async.waiting == times({.waits = 1, .waits_for_work = 1}, 20));
    CHECK(is_async.between == 0);
    CHECK(is_async.overlapping == 20);

    const auto other = folder.live({});
    Counting synchronous(other->runner, false);
    decode(folder, synchronous);
    CHECK(synchronous.critical == times({.graphs = 1, .copies = 3, .events = 3, .waits = 2}, 20));
    CHECK(synchronous.waiting == times({.waits = 1, .waits_for_work = 1}, 20));
    CHECK(synchronous.between == 0);
  }

  TEST_CASE("drafts of a draft layer are one graph, and so is the step that verifies them") {
    DraftWorld world(
        [&](kernels::Queue& queue) {
          TensorFiles files(golden_folder / "qwen3_5-dense");
          return models::load_model(
              queue, models::Config::from_folder(golden_folder / "qwen3_5-dense"), files,
              {.load = {.activation = DType::bf16}, .with_drafts = true});
        },
        kernels::Device::cuda, {.threads = 1, .isa = {}}, true);
    VerifySteps steps(world, {}, 3);
    const std::vector<std::int32_t> drafts = {3, 1, 3};
    const auto check_one_graph = [] {
      const HostCalls calls = emulator::take_host_calls();
      CHECK(calls.graphs == 1);
      CHECK(calls.kernels == 0);
    };
    for (int i = 0; i < 2; ++i) {
      steps.draft(drafts);
      steps.run(drafts);
    }
    emulator::take_host_calls();
    steps.draft(drafts);
    check_one_graph();
    steps.run(drafts);
    check_one_graph();
  }
}

}  // namespace decode_calls_test
