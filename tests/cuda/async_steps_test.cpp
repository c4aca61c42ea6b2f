#include <doctest/doctest.h>

#include "tests/models/reuse_world.h"

namespace async_steps_test {

using namespace hyb;
using namespace hyb::models::testing;

namespace {

/// Does what another runner does, while the host waits.
class Synchronous final : public Runner {
 public:
  explicit Synchronous(Runner& runner) : runner_(&runner) {}
  Capacity capacity() const override { return runner_->capacity(); }
  StepResult run(const Step& step) override { return runner_->run(step); }
  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    runner_->read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    runner_->write(view, unit, bytes);
  }

 private:
  Runner* runner_;
};

/// Everything that answers can differ in.
struct Received : Sink {
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId request, std::int32_t choice, const Completion& completion) override {
    const std::pair key{request, choice};
    tokens[key] = completion.tokens;
    reasons[key] = completion.reason;
    for (const TokenEvent& event : completion.events) {
      logprobs[key].push_back(event.logprob);
      for (const TokenLogprob& other : event.top) logprobs[key].push_back(other.logprob);
    }
  }
  std::map<std::pair<RequestId, std::int32_t>, std::vector<TokenId>> tokens;
  std::map<std::pair<RequestId, std::int32_t>, std::vector<float>> logprobs;
  std::map<std::pair<RequestId, std::int32_t>, FinishReason> reasons;
};

/// Greedy and drawn, with logprobs, penalties and biases; some end at a token that comes early.
std::vector<Request> requests_of(ReuseFolder& folder) {
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) {
    Request request;
    request.prompt = folder.draw(5 + 9 * i);
    request.max_tokens = i == 5 ? 5 : 20 + 8 * (i % 3);
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 1.0F;
    request.sampling.top_k = i == 4 ? 20 : 0;
    if (i == 2) request.sampling.logprobs = 3;
    if (i == 5) request.sampling.repetition_penalty = 1.3F;
    if (i == 1) request.sampling.bias = {{TokenId{7}, 2.0F}, {TokenId{9}, -3.0F}};
    if (i % 2 == 1) request.stop_tokens = {TokenId{11 + i}, TokenId{50 + i}, TokenId{80}};
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Run {
  Received received;
  EngineUsage usage;
};

Run run(Life& life, Runner& runner, const std::vector<Request>& requests) {
  Run run;
  Engine engine(runner, nullptr,
                {.length_max = reuse_length_max,
                 .sequences_max = 4,
                 .chunk_tokens = 40,
                 .prefixes = {.branch_tokens_min = 4},
                 .audit = true});
  for (const Request& request : requests) {
    engine.submit(request, run.received);
    engine.step();
  }
  while (engine.step()) {
  }
  run.usage = engine.usage();
  CHECK(life.runner.graphs_replayed() > 0);
  return run;
}

}  // namespace

TEST_SUITE("cuda/async_steps") {
  TEST_CASE("steps that start while the last one is reported draw the same tokens") {
    for (const char* const name : {"granite-dense-rope", "qwen3_5-dense"}) {
      for (const char* const memory : {"flat", "flip"}) {
        CAPTURE(name);
        CAPTURE(memory);
        ReuseFolder folder(name, kernels::Device::cuda);
        const std::vector<Request> requests = requests_of(folder);
        const Setting setting = {.memory = memory};
        const auto async = folder.live(setting), waiting = folder.live(setting);
        Synchronous synchronous(waiting->runner);
        const Run got = run(*async, async->runner, requests);
        const Run expected = run(*waiting, synchronous, requests);
        CHECK(got.received.tokens == expected.received.tokens);
        CHECK(got.received.logprobs == expected.received.logprobs);
        CHECK(got.received.reasons == expected.received.reasons);
        CHECK(got.usage.prefixes.published == expected.usage.prefixes.published);
        CHECK(got.usage.snapshots == expected.usage.snapshots);
        CHECK(got.usage.steps_ahead > 10);
        CHECK(expected.usage.steps_ahead == 0);
      }
    }
  }
}

}  // namespace async_steps_test
