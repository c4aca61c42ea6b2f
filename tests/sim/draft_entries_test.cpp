#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/sim/fixture.h"

namespace draft_entries_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

/// A row takes a second, what only drafts read 7 % more, and a pass of drafting some time. Notes
/// which sequences lack entries, by the first token of their prompts.
class EntryWitness final : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;

  StepResult run(const Step& step) override {
    StepResult result = ToyRunner::run(step);
    if (step.spans.empty()) return result;
    ++(step.draft_entries ? with_entries : without_entries);
    for (const Span& span : step.spans) {
      if (span.position == 0) now_running_ = span.tokens.front();
      if (!span.samples.empty()) now_running_ = span.samples.front().history.front();
      bool& is_whole = is_whole_[now_running_];
      is_whole = step.draft_entries && (is_whole || span.position == 0);
    }
    const double seconds = 0.9 + 0.1 * static_cast<double>(step.spans.size());
    if (step.draft_entries) result.draft_entry_seconds = 0.07 * seconds;
    pass(seconds + result.draft_entry_seconds);
    return result;
  }

  std::vector<std::vector<SampledToken>> draft(const Step& step) override {
    std::int32_t passes = 0;
    for (const Span& span : step.spans) {
      CHECK(is_whole_.at(span.samples.front().history.front()));
      passes = std::max(passes, span.drafts);
    }
    pass(pass_seconds * passes);
    return ToyRunner::draft(step);
  }

  void pass(double seconds) {
    now += std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
  }

  double pass_seconds = 0;
  std::int64_t with_entries = 0, without_entries = 0;
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};

 private:
  std::map<TokenId, bool> is_whole_;
  TokenId now_running_{};
};

struct Outcome {
  double seconds;
  std::int64_t with_entries, without_entries, accepted;
};

/// `at_once` sequences beside each other, one after the other; their answers are checked.
Outcome run(std::int32_t sequences, std::int32_t at_once, std::int32_t drafts,
            double pass_seconds) {
  const ToyModel model = {.recurrence = false};
  Capacity capacity = flat(1000, 0);
  capacity.step_samples = 64;
  EntryWitness runner(capacity, model);
  runner.pass_seconds = pass_seconds;
  EngineOptions options = usual;
  options.prefixes.enabled = false;
  options.now = [&] { return runner.now; };
  options.speculation = {.is_on = true, .draft_steps = drafts, .by_model = true};
  Engine engine(runner, nullptr, options);
  Listener sink;
  const auto begin = runner.now;
  std::vector<std::pair<RequestId, Request>> asked;
  for (std::int32_t i = 0; i < sequences; ++i) {
    const Request request = request_of({TokenId{i % 16}, TokenId{3}, TokenId{i / 16 % 16}}, 24);
    asked.emplace_back(engine.submit(request, sink), request);
    while (engine.running() + engine.waiting() >= at_once) engine.step();
  }
  while (!engine.idle()) engine.step();
  for (const auto& [id, request] : asked) {
    const Completion& got = *sink.find(id, 0)->completion;
    CHECK(got.tokens == answer_of(model, nullptr, engine.length_max(), request, 0).tokens);
  }
  return {.seconds = std::chrono::duration<double>(runner.now - begin).count(),
          .with_entries = runner.with_entries,
          .without_entries = runner.without_entries,
          .accepted = engine.usage().speculation.total().accepted};
}

}  // namespace

TEST_SUITE("sim/draft_entries") {
  TEST_CASE("where drafts do not pay, steps have hardly any entries, and little is lost") {
    for (const std::int32_t at_once : {1, 4}) {
      CAPTURE(at_once);
      const Outcome outcome = run(600, at_once, 0, 3);
      const double plain = 600.0 * 24 * (0.9 / at_once + 0.1);
      CHECK(outcome.without_entries > 5 * outcome.with_entries);
      CHECK(outcome.seconds < 1.02 * plain);
    }
  }

  TEST_CASE("where they pay, all steps have them") {
    for (const std::int32_t at_once : {1, 4}) {
      CAPTURE(at_once);
      const Outcome outcome = run(100, at_once, 0, 0.05);
      CHECK(outcome.without_entries == 0);
      CHECK(outcome.accepted > 500);
      CHECK(outcome.seconds < 0.8 * 100 * 24 * (0.9 / at_once + 0.1));
    }
  }

  TEST_CASE("a given number of drafts has entries, whatever they take") {
    const Outcome outcome = run(50, 2, 3, 3);
    CHECK(outcome.without_entries == 0);
    CHECK(outcome.accepted > 0);
  }
}

}  // namespace draft_entries_test
