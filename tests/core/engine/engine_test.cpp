#include "core/engine/engine.h"

#include <doctest/doctest.h>

#include <functional>

#include "core/base/error.h"
#include "tests/sim/listener.h"
#include "tests/sim/toy_model.h"
#include "tests/support/ambiguous_grammar.h"

namespace engine_test {

using namespace hyb;
using namespace hyb::sim;

namespace {

const Capacity plenty = {.memory = flat_layout({.pages = 100, .slots = 8, .page_tokens = 4}),
                         .step_tokens = 16,
                         .sequences_max = 8,
                         .vocab = 16};

Request request_of(std::int32_t prompt, std::int32_t max_tokens) {
  Request request;
  for (std::int32_t i = 0; i < prompt; ++i) request.prompt.push_back(TokenId{i % 16});
  request.max_tokens = max_tokens;
  return request;
}

/// Everything an engine needs.
struct Bench {
  explicit Bench(const Capacity& capacity = plenty, const Tokenizer* text = &toy_tokenizer())
      : runner(capacity, model), engine(runner, text, {.length_max = 100, .chunk_tokens = 8}) {}

  void run() {
    while (!engine.idle()) {
      engine.step();
      engine.audit();
    }
  }

  ToyModel model;
  ToyRunner runner;
  Engine engine;
};

class Reacting : public Listener {
 public:
  std::function<void(RequestId)> reaction = [](RequestId) {};

 private:
  void after_event(RequestId request) override { reaction(request); }
};

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

/// A runner that answers nonsense.
class WrongRunner : public Runner {
 public:
  Capacity capacity() const override {
    Capacity capacity = plenty;
    capacity.memory = memory;
    return capacity;
  }
  StepResult run(const Step&) override { return result; }
  void read(ViewId, std::int32_t, std::span<std::byte>) override {}
  void write(ViewId, std::int32_t, std::span<const std::byte>) override {}
  StepResult result;
  MemoryLayout memory = plenty.memory;
};

/// Superblocks of one slot, or of pages enough for a test.
const Capacity growing = [] {
  Capacity capacity = plenty;
  MemoryLayout& memory = capacity.memory;
  memory.fixed_superblocks.clear();
  memory.superblock_bytes = 1000;
  memory.superblocks = 20;
  memory.groups[0].page_bytes = 1;
  memory.groups[0].pages_per_superblock = 1000;
  memory.slots = {.bytes = 1000, .per_superblock = 1};
  return capacity;
}();

/// Counts the owners that each step changes.
class OwnerCounter : public ToyRunner {
 public:
  using ToyRunner::ToyRunner;
  struct Changes {
    int at_once = 0, ahead = 0;
  };
  StepResult run(const Step& step) override {
    Changes& changes = steps_seen.emplace_back();
    for (const Order& order : step.orders) {
      const auto* const change = std::get_if<ChangeOwner>(&order);
      if (change != nullptr) ++(change->is_ahead ? changes.ahead : changes.at_once);
    }
    return ToyRunner::run(step);
  }
  std::vector<Changes> steps_seen;
};

struct GrowingBench {
  explicit GrowingBench(std::int32_t states_ahead)
      : runner(growing, model),
        engine(runner, nullptr,
               {.length_max = 100, .chunk_tokens = 16, .states_ahead = states_ahead}) {}

  /// The changes of each step of a request.
  std::vector<OwnerCounter::Changes> run(const Request& request) {
    runner.steps_seen.clear();
    Listener sink;
    engine.submit(request, sink);
    while (!engine.idle()) {
      engine.step();
      engine.audit();
    }
    return runner.steps_seen;
  }

  ToyModel model;
  OwnerCounter runner;
  Engine engine;
};

}  // namespace

TEST_SUITE("core/engine/engine") {
  TEST_CASE("a rule that can't be followed ends its own answers, and no other") {
    for (const bool drafts : {false, true}) {
      const ToyModel model;
      ToyRunner runner(plenty, model);
      Engine engine(runner, &toy_tokenizer(),
                    {.length_max = 100,
                     .chunk_tokens = 8,
                     .speculation = {.is_on = drafts, .draft_steps = drafts ? 4 : 0},
                     .audit = true});
      Request bound = request_of(5, 40);
      bound.stop_tokens = {toy_end};
      bound.choices = 2;
      bound.rule = toy_rules().get(
          {.form = AnswerRule::Form::gbnf, .text = testing::ambiguous_grammar(), .source = "rule"});
      Listener sink;
      const RequestId ambiguous = engine.submit(bound, sink);
      const RequestId free = engine.submit(request_of(9, 40), sink);
      while (!engine.idle()) engine.step();
      for (const int choice : {0, 1}) {
        const Completion end = *sink.find(ambiguous, choice)->completion;
        CHECK(end.reason == FinishReason::error);
        CHECK(end.error.starts_with("rule: too ambiguous"));
        CHECK(end.text.starts_with("aaa"));
      }
      CHECK(sink.find(free, 0)->completion->tokens.size() == 40);
    }
  }

  TEST_CASE("a request whose prompt is known finds memory that was ordered while others answered") {
    const Request request = request_of(12, 4);
    for (const std::int32_t states : {0, 3}) {
      GrowingBench bench(states);
      const auto cold = bench.run(request);
      REQUIRE(cold.size() == 5);  // all but the prompt's last token, that one, three tokens
      CHECK(cold[0].at_once == 2);
      CHECK(cold[1].at_once == 1);
      CHECK(cold[0].ahead + cold[1].ahead == 0);  // no first token waits for it
      CHECK(cold[2].ahead == states);
      CHECK(cold[3].ahead + cold[4].ahead == 0);
      const auto warm = bench.run(request);
      REQUIRE(warm.size() == 4);
      CHECK(warm[0].at_once == (states == 0 ? 1 : 0));
      CHECK(warm[1].ahead == (states == 0 ? 0 : 1));
    }
  }

  TEST_CASE("memory is ordered ahead once after sequences began, and in pauses") {
    GrowingBench bench(3);
    bench.engine.prepare_memory();
    CHECK(bench.engine.pool().superblocks().idle() == 3);
    CHECK(bench.engine.pool().orders().empty());
    Listener sink;
    bench.engine.submit(request_of(12, 20), sink);
    while (sink.finished() == 0) {
      bench.engine.step();
      if (bench.runner.steps_seen.size() == 4) {  // the pause, the prompt and two tokens
        CHECK(bench.engine.pool().superblocks().idle() == 3);
        CHECK(bench.engine.pool().give_back(10) == 3);
      }
    }
    CHECK(bench.runner.steps_seen.size() > 10);
    CHECK(bench.engine.pool().superblocks().idle() == 0);
    bench.engine.audit();
  }

  TEST_CASE("one request is answered as the naive model says, token by token") {
    Bench bench;
    Listener sink;
    const Request request = request_of(20, 10);
    const RequestId id = bench.engine.submit(request, sink);
    CHECK_FALSE(bench.engine.idle());
    CHECK(bench.engine.waiting() == 1);
    bench.run();
    const Listener::Heard* heard = sink.find(id, 0);
    REQUIRE(heard != nullptr);
    const ToyAnswer expected =
        answer_of(bench.model, &toy_tokenizer(), bench.engine.length_max(), request, 0);
    CHECK(heard->completion->tokens == expected.tokens);
    CHECK(heard->text == expected.text);
    // Chunks of 8, 8 and 3 (there a snapshot is left) and 1, then a token each.
    CHECK(bench.runner.steps == 4 + 9);
    CHECK(heard->completion->usage.prefilled_tokens == 20);
    CHECK_FALSE(bench.engine.step());
  }

  TEST_CASE("the limit is the smaller of the requested length and what the pages hold") {
    const auto limit = [](std::int32_t pages, std::int32_t asked) {
      ToyRunner runner({.memory = flat_layout({.pages = pages, .slots = 1, .page_tokens = 4}),
                        .step_tokens = 4,
                        .sequences_max = 1,
                        .vocab = 16},
                       {.attention = pages > 0});
      return Engine(runner, nullptr, {.length_max = asked}).length_max();
    };
    CHECK(limit(5, 100) == 20);
    CHECK(limit(50, 100) == 100);
    CHECK(limit(0, 100'000) == 100'000);
  }

  TEST_CASE("options and pools that can never serve are refused") {
    ToyRunner runner(plenty, {});
    const auto with = [&](EngineOptions options) {
      return error_of([&] { Engine(runner, nullptr, options); }, ErrorKind::usage);
    };
    CHECK(with({.length_max = 1}) == "engine: the length limit is 2 tokens or more: 1");
    CHECK(with({.length_max = 9, .sequences_max = 0}) == "engine: at least 1 sequence runs: 0");
    CHECK(with({.length_max = 9, .chunk_tokens = 0}) == "engine: a chunk has at least 1 token: 0");
    CHECK(with({.length_max = 9, .mixed_tokens = -1}) ==
          "engine: prompts beside answers have 0 or more tokens: -1");
    Capacity tiny = plenty;
    tiny.memory = flat_layout({.pages = 1, .slots = 8, .page_tokens = 1});
    ToyRunner small(tiny, {});
    CHECK(error_of([&] { Engine(small, nullptr, {.length_max = 9}); }, ErrorKind::memory) ==
          "engine: the memory holds less than 2 tokens; give more memory");
  }

  TEST_CASE("a request that can never run is refused at once without a trace") {
    Bench bench;
    Listener sink;
    CHECK(error_of([&] { bench.engine.submit(request_of(100, 1), sink); }, ErrorKind::usage) ==
          "request: the prompt has 100 tokens, 1 more than fit: the limit is 100 of prompt and "
          "answer together; shorten or truncate the prompt, or raise the limit");
    CHECK(bench.engine.idle());
    Bench mute(plenty, nullptr);
    Request request = request_of(3, 3);
    request.stop = {"x"};
    CHECK_THROWS_AS(mute.engine.submit(request, sink), Error);
  }

  TEST_CASE("a prompt that needs more memory than there is is refused with the figures") {
    Capacity small = plenty;
    small.memory = flat_layout(
        {.pages = 5, .slots = 2, .page_tokens = 4, .page_bytes = 100, .slot_bytes = 30});
    Bench bench(small);
    Listener sink;
    CHECK(bench.engine.length_max() == 20);
    CHECK(error_of([&] { bench.engine.submit(request_of(20, 1), sink); }, ErrorKind::memory) ==
          "engine: the prompt has 20 tokens and needs 630 bytes of memory; there are " +
              std::to_string(small.memory.bytes()) +
              " bytes, enough for a prompt of 19 tokens; shorten it, or give more memory");
    bench.engine.submit(request_of(19, 1), sink);
    bench.run();
    CHECK(sink.finished() == 1);
  }

  TEST_CASE("a long prompt through window layers needs a window, and that is had") {
    static const SlidingWindow window(64);
    WrongRunner runner;
    runner.memory = {.page_tokens = 16,
                     .groups = {{.kind = &window, .page_bytes = 10, .pages_per_superblock = 2}},
                     .slots = {},
                     .packed = {},
                     .superblock_bytes = 20,
                     .superblocks = 4,
                     .fixed_superblocks = {}};
    Engine engine(runner, nullptr, {.length_max = 100'001, .prefixes = {.enabled = false}});
    CHECK(engine.length_max() == 100'001);
    Listener sink;
    const RequestId id = engine.submit(request_of(100'000, 1), sink);
    while (engine.running() == 0 || engine.usage().steps * 16 < 99'000) {
      runner.result.sampled.clear();
      engine.step();
      engine.audit();
      if (engine.usage().pool.pages[0].units > 8) break;
    }
    CHECK(engine.usage().preemptions == 0);
    CHECK(engine.usage().pool.pages[0].units <= 8);
    engine.cancel(id);
  }

  TEST_CASE("choices share one prefill, and each is as if alone") {
    Bench bench;
    Listener sink;
    Request request = request_of(30, 6);
    request.choices = 4;
    request.sampling.temperature = 1.0F;
    request.sampling.seed = 11;
    const RequestId id = bench.engine.submit(request, sink);
    bench.run();
    std::int32_t prefilled = 0;
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      const Completion& got = *sink.find(id, choice)->completion;
      CHECK(got.tokens == answer_of(bench.model, &toy_tokenizer(), 100, request, choice).tokens);
      prefilled += got.usage.prefilled_tokens;
      CHECK(got.usage.reused_tokens == (choice == 0 ? 0 : 29));
    }
    CHECK(prefilled == 30 + 3);
    CHECK(sink.find(id, 0)->completion->tokens != sink.find(id, 1)->completion->tokens);
  }

  TEST_CASE("choices are prefilled one by one where no slot is free for a snapshot") {
    Capacity one_slot = plenty;
    one_slot.memory = flat_layout({.pages = 100, .slots = 1, .page_tokens = 4});
    Bench bench(one_slot);
    Listener sink;
    Request request = request_of(30, 6);
    request.choices = 3;
    const RequestId id = bench.engine.submit(request, sink);
    bench.run();
    for (std::int32_t choice = 0; choice < 3; ++choice) {
      CHECK(sink.find(id, choice)->completion->usage.prefilled_tokens == 30);
    }
  }

  TEST_CASE("cancel ends a request that waits, runs, or has ended") {
    Bench bench;
    Listener sink;
    const RequestId waits = bench.engine.submit(request_of(30, 6), sink);
    bench.engine.cancel(waits);
    CHECK(sink.find(waits, 0)->completion->reason == FinishReason::cancelled);
    CHECK(bench.engine.idle());

    Request request = request_of(30, 20);
    request.choices = 3;
    const RequestId runs = bench.engine.submit(request, sink);
    for (int i = 0; i < 7; ++i) bench.engine.step();
    CHECK(bench.engine.running() == 3);
    bench.engine.cancel(runs);
    bench.engine.audit();
    CHECK(bench.engine.idle());
    CHECK(bench.engine.running() == 0);
    CHECK_FALSE(sink.find(runs, 2)->completion->tokens.empty());
    bench.engine.cancel(runs);
    bench.engine.cancel(RequestId{99});
    CHECK(sink.finished() == 4);
  }

  TEST_CASE("a sink may cancel and submit, and may not step") {
    Bench bench;
    Reacting sink;
    bool submitted = false;
    std::string refused;
    sink.reaction = [&](RequestId request) {
      if (!submitted) bench.engine.submit(request_of(4, 2), sink);
      submitted = true;
      refused = error_of([&] { bench.engine.step(); }, ErrorKind::runtime);
      bench.engine.cancel(request);
    };
    Request request = request_of(5, 50);
    request.choices = 2;
    const RequestId id = bench.engine.submit(request, sink);
    bench.run();
    CHECK(sink.find(id, 0)->completion->reason == FinishReason::cancelled);
    CHECK(sink.find(id, 1)->completion->reason == FinishReason::cancelled);
    CHECK(sink.finished() == 3);
    CHECK(refused.find("step() is not called from inside a step") != std::string::npos);
  }

  TEST_CASE("a sink that throws loses no event of the others") {
    Bench bench;
    Reacting sink;
    int left = 3;
    sink.reaction = [&](RequestId) {
      if (left-- > 0) throw SinkFailure();
    };
    for (int i = 0; i < 3; ++i) bench.engine.submit(request_of(5, 4), sink);
    int thrown = 0;
    while (!bench.engine.idle()) {
      try {
        bench.engine.step();
      } catch (const SinkFailure&) {
        ++thrown;
      }
    }
    CHECK(thrown == 3);
    CHECK(sink.finished() == 3);
  }

  TEST_CASE("a step that throws is reported and loses no request") {
    Bench bench;
    Listener sink;
    const Request request = request_of(12, 12);
    const RequestId id = bench.engine.submit(request, sink);
    int steps = 0;
    bench.runner.fails = [&] { return ++steps % 7 == 0; };
    int failures = 0;
    while (!bench.engine.idle()) {
      try {
        bench.engine.step();
      } catch (const StepFailure&) {
        ++failures;
        CHECK(bench.engine.running() == 0);
        CHECK(bench.engine.waiting() == 1);
      }
      bench.engine.audit();
    }
    CHECK(failures == 2);
    CHECK(bench.engine.usage().failed_steps == 2);
    const Completion& got = *sink.find(id, 0)->completion;
    CHECK(got.tokens == answer_of(bench.model, &toy_tokenizer(), 100, request, 0).tokens);
    CHECK(got.usage.prefilled_tokens == 12);
    CHECK(got.usage.recomputed_tokens > 12);
  }

  TEST_CASE("a runner that breaks its contract is an error, and nothing is lost") {
    WrongRunner runner;
    Engine engine(runner, nullptr, {.length_max = 50, .prefixes = {.enabled = false}});
    Listener sink;
    engine.submit(request_of(3, 2), sink);
    CHECK(
        error_of([&] { engine.step(); }, ErrorKind::runtime).find("the runner answers every row") !=
        std::string::npos);
    runner.result.sampled = {{.token = TokenId{16}, .top = {}}};
    CHECK(error_of([&] { engine.step(); }, ErrorKind::runtime).find("draws from the vocabulary") !=
          std::string::npos);
    runner.result.sampled[0].token = TokenId{15};
    engine.audit();
    while (!engine.idle()) engine.step();
    CHECK(sink.finished() == 1);
  }

  TEST_CASE("logprobs are kept per token on request") {
    Bench bench;
    Listener sink;
    Request request = request_of(5, 4);
    request.sampling.logprobs = 2;
    const RequestId id = bench.engine.submit(request, sink);
    bench.run();
    const Completion& got = *sink.find(id, 0)->completion;
    REQUIRE(got.events.size() == got.tokens.size());
    for (std::size_t i = 0; i < got.events.size(); ++i) {
      CHECK(got.events[i].token == got.tokens[i]);
      CHECK(got.events[i].top.size() == 2);
    }
  }

  TEST_CASE("without a tokenizer there are tokens and no text") {
    Bench bench(plenty, nullptr);
    Listener sink;
    const RequestId id = bench.engine.submit(request_of(5, 4), sink);
    bench.run();
    CHECK(sink.find(id, 0)->completion->tokens.size() == 4);
    CHECK(sink.find(id, 0)->completion->text.empty());
  }
}

}  // namespace engine_test
