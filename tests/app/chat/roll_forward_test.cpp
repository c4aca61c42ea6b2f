#include "app/chat/roll_forward.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

namespace {

constexpr std::int32_t vocab = 16;

/// A model that always says the same, and counts its tokens.
class SteadyRunner : public Runner {
 public:
  Capacity capacity() const override {
    return {.memory = flat_layout({.pages = 200, .slots = 16, .page_tokens = 4}),
            .step_tokens = 64,
            .step_rows = 8,
            .vocab = vocab};
  }

  StepResult run(const Step& step) override {
    StepResult result;
    for (const Span& span : step.spans) {
      span_max = std::max(span_max, static_cast<int>(span.tokens.size()));
      result.sampled.resize(result.sampled.size() + span.samples.size());
    }
    return result;
  }

  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}

  int span_max = 0;
};

std::vector<TokenId> tokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId{(i * 7 + i / 5) % vocab});
  return tokens;
}

struct Bench {
  Usage answer(int prompt) {
    struct Last : Sink {
      void on_text(RequestId, std::int32_t, std::string_view) override {}
      void on_finish(RequestId, std::int32_t, const Completion& completion) override {
        usage = completion.usage;
      }
      Usage usage;
    } last;
    Request request;
    request.prompt = tokens(prompt);
    request.max_tokens = 2;
    engine.submit(std::move(request), last);
    while (!engine.idle()) engine.step();
    engine.audit();
    return last.usage;
  }

  SteadyRunner runner;
  Engine engine{runner, nullptr, {.length_max = 200, .chunk_tokens = 64}};
  RollForward ahead{engine};
};

int work_all(RollForward& ahead) {
  int pieces = 0;
  while (ahead.work()) ++pieces;
  return pieces;
}

}  // namespace

TEST_SUITE("app/chat/roll_forward") {
  TEST_CASE("what was run ahead in pieces is not run again") {
    Bench bench;
    bench.ahead.begin([] { return tokens(100); });
    CHECK(bench.ahead.tokens() == 0);
    CHECK(work_all(bench.ahead) >= 100 / 16);
    CHECK(bench.runner.span_max <= 16);
    CHECK(bench.ahead.tokens() == 100);
    CHECK(bench.engine.idle());
    const Usage usage = bench.answer(120);
    CHECK(usage.reused_tokens == 100);
    CHECK(usage.prefilled_tokens == 20);
    CHECK_FALSE(bench.ahead.work());
  }

  TEST_CASE("ended at any piece, the engine is idle at once and nothing is lost") {
    for (int pieces = 0; pieces < 8; ++pieces) {
      Bench bench;
      bench.ahead.begin([] { return tokens(100); });
      for (int i = 0; i < pieces; ++i) bench.ahead.work();
      bench.ahead.end();
      CHECK(bench.engine.idle());
      CHECK_FALSE(bench.ahead.work());
      const Usage usage = bench.answer(120);
      CHECK(usage.reused_tokens + usage.prefilled_tokens == 120);
      CHECK(usage.reused_tokens >= 16 * (pieces - 1));
    }
  }

  TEST_CASE("another begin takes its place") {
    Bench bench;
    bench.ahead.begin([] { return tokens(100); });
    bench.ahead.work();
    bench.ahead.begin([] { return tokens(50); });
    work_all(bench.ahead);
    CHECK(bench.engine.idle());
    CHECK(bench.answer(60).reused_tokens == 50);
  }

  TEST_CASE("a fast machine takes larger pieces") {
    Bench bench;
    Usage usage;
    usage.prefilled_tokens = 1000;
    usage.prefill = std::chrono::seconds(1);
    bench.ahead.learn(usage);
    bench.ahead.begin([] { return tokens(100); });
    work_all(bench.ahead);
    CHECK(bench.runner.span_max > 16);
  }

  TEST_CASE("nothing to run, or more than can be") {
    Bench bench;
    CHECK_FALSE(bench.ahead.work());
    for (const int count : {0, 200, 1000}) {
      bench.ahead.begin([count] { return tokens(count); });
      CHECK_FALSE(bench.ahead.work());
      CHECK(bench.engine.idle());
    }
    bench.ahead.begin([]() -> std::vector<TokenId> { throw Error(ErrorKind::model, "no"); });
    CHECK_FALSE(bench.ahead.work());
  }
}
