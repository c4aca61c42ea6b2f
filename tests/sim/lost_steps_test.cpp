#include <optional>
#include <utility>

#include "tests/sim/fixture.h"
#include "tests/support/error_text.h"

namespace lost_steps_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

/// The runner of a prefill lane that loses some of its steps.
class LosingLane final : public Runner {
 public:
  explicit LosingLane(ToyRunner& runner) : runner_(&runner) {}

  Capacity capacity() const override { return runner_->capacity(); }
  bool is_async() const override { return true; }
  StepResult run(const Step& step) override { return runner_->run(step); }
  void launch(const Step& step) override { step_ = &step; }
  bool is_done() override { return true; }
  StepResult wait() override {
    const Step& step = *std::exchange(step_, nullptr);
    if (step.spans.front().position >= loses_from && losses_left-- > 0) throw StepLost("lost");
    return runner_->run(step);
  }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  std::int32_t loses_from = 0;  ///< steps whose first span is there or later
  int losses_left = 0;

 private:
  ToyRunner* runner_;
  const Step* step_ = nullptr;
};

/// An answer to a prompt of several chunks, of whose later steps the first `losses` are lost.
Completion answer(int losses, EngineUsage* usage = nullptr) {
  const ToyModel model;
  ToyRunner runner(elastic(20), model);
  LosingLane lane(runner);
  lane.loses_from = 32;
  lane.losses_left = losses;
  EngineOptions options = usual;
  options.prefill_lane = &lane;
  Engine engine(runner, nullptr, options);
  Listener sink;
  const RequestId id = engine.submit(request_of(prompt_of(80), 5), sink);
  while (!engine.idle()) engine.step();
  if (usage != nullptr) *usage = engine.usage();
  return *sink.find(id, 0)->completion;
}

}  // namespace

TEST_SUITE("sim/lost_steps") {
  TEST_CASE("what was lost is run again, to the same answer and without an error") {
    const Completion whole = answer(0);
    CHECK(whole.tokens.size() == 5);
    for (const int losses : {1, 2, 15}) {
      EngineUsage usage;
      CHECK(answer(losses, &usage).tokens == whole.tokens);
      CHECK(usage.failed_steps == losses);
    }
  }

  TEST_CASE("a request whose steps are lost again and again ends with an error") {
    const Completion end = answer(1000);
    CHECK(end.reason == FinishReason::error);
    CHECK(end.tokens.empty());
    CHECK(testing::contains(end.error, "16 processes ended amid steps of this request"));
  }
}

}  // namespace lost_steps_test
