#include "app/eval/text_evaluation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "app/runtime/model_outline.h"
#include "app/verify/passages.h"
#include "core/base/error.h"
#include "models/memory_layout.h"
#include "tests/support/error_text.h"

namespace text_evaluation_test {

using namespace hyb;
using namespace hyb::app;
using hyb::testing::error_text;

namespace {

constexpr std::int32_t window = 24;

/// A tiny model with packed snapshots; steps sample few rows, so that a window takes several.
struct Opened {
  explicit Opened(const std::string& name, std::optional<DType> state = {})
      : bare([&] {
          ModelOptions options;
          options.model = std::string(HYB_TESTS_DIR) + "/golden/" + name;
          options.device = kernels::Device::cpu;
          options.threads = 1;
          options.types.state = state;
          return open_bare(resolve(options, {}));
        }()),
        layout(models::memory_layout_of(bare.model.geometry,
                                        {.pool_bytes = 2 << 20, .packed = true, .flat = {}})),
        runner(bare.queue, bare.model.plan, bare.model.weights, bare.model.geometry,
               {.memory = layout,
                .step_tokens = 7,
                .sequences_max = 2,
                .positions_max = window,
                .vocab_used = bare.model.plan.vocab,
                .mapping = {.mode = kernels::MapMode::remap},
                .step_samples = 5}),
        pool(runner.capacity().memory) {}

  Reader reader() { return {.runner = &runner, .pool = &pool}; }

  BareModel bare;
  models::ModelMemoryLayout layout;
  models::ModelRunner runner;
  MemoryPool pool;
};

TextWindows some_windows(const Opened& model, std::int32_t count) {
  TextWindows windows = {.tokens = {}, .length = window};
  for (std::int32_t i = 0; i < count * window; ++i) {
    windows.tokens.push_back(TokenId{(i * i + 5 * i) % model.bare.model.plan.vocab});
  }
  return windows;
}

/// The mean loss of the scored tokens, each after a prompt of its own, in double from all logits.
double loss_one_by_one(Opened& model, const TextWindows& windows) {
  double sum = 0;
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < windows.count(); ++i) {
    const std::span<const TokenId> tokens = windows.window(i);
    for (std::size_t end = windows.length / 2 + 1; end < tokens.size(); ++end) {
      Passage passage;
      passage.prompt.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end));
      passage.answer_tokens = 1;
      const Trace trace = std::move(Replay(model.runner).run({&passage, 1}).front());
      double exponentials = 0;
      for (const float logit : trace.logits) exponentials += std::exp(logit);
      sum += std::log(exponentials) - trace.logits[static_cast<std::size_t>(index(tokens[end]))];
      ++count;
    }
  }
  return sum / count;
}

}  // namespace

TEST_SUITE("app/eval/text_evaluation") {
  TEST_CASE("a token's loss is that of the logits after a prompt that ends before it") {
    for (const char* name : {"granite-odd", "qwen3_5-dense", "gemma3", "falcon-h1-plain"}) {
      CAPTURE(name);
      Opened model(name);
      const TextWindows windows = some_windows(model, 2);
      const Evaluation found = evaluate(windows, model.reader(), nullptr, {});
      model.pool.resync_owners();
      CHECK(found.windows == 2);
      CHECK(found.loss.tokens == 2 * (window - 1 - window / 2));
      CHECK(found.loss.mean() == doctest::Approx(loss_one_by_one(model, windows)).epsilon(1e-6));
      CHECK(!found.reference_loss);
    }
  }

  TEST_CASE("a model is not far from itself, and another state is") {
    Opened model("qwen3_5-dense"), same("qwen3_5-dense"), rounded("qwen3_5-dense", DType::bf16);
    const TextWindows windows = some_windows(model, 3);
    std::vector<std::int32_t> done;
    const Reader reference = model.reader();
    const Evaluation none =
        evaluate(windows, same.reader(), &reference,
                 {.progress = [&](std::int32_t count) { done.push_back(count); }});
    CHECK(done == std::vector<std::int32_t>{1, 2, 3});
    CHECK(none.divergence.rows == none.loss.tokens);
    CHECK(none.divergence.largest == 0);
    CHECK(none.divergence.likeliest_differs == 0);
    CHECK(none.loss.sum == none.reference_loss->sum);
    CHECK(none.window_divergence == std::vector<double>{0, 0, 0});
    const Evaluation some = evaluate(windows, rounded.reader(), &reference, {});
    CHECK(some.divergence.mean > 0);
    CHECK(some.reference_loss->sum == none.loss.sum);
    double sum = 0;
    for (const double mean : some.window_divergence) sum += mean / 3;
    CHECK(sum == doctest::Approx(some.divergence.mean));
  }

  TEST_CASE("windows that go on from an int8 snapshot move a little") {
    Opened model("qwen3_5-dense"), reference("qwen3_5-dense");
    const TextWindows windows = some_windows(model, 2);
    const Reader exact = reference.reader();
    const Evaluation found = evaluate(windows, model.reader(), &exact, {.through_snapshot = true});
    CHECK(found.divergence.mean > 0);
    CHECK(found.divergence.mean < 0.1);
  }

  TEST_CASE("the error of a perplexity is that of the mean loss times the perplexity") {
    Loss loss;
    for (const double nats : {1.0, 2.0, 3.0, 6.0}) loss.add(nats);
    CHECK(loss.perplexity() == doctest::Approx(std::exp(3.0)));
    CHECK(loss.perplexity_error() == doctest::Approx(std::sqrt(3.5 / 3) * std::exp(3.0)));
  }

  TEST_CASE("windows are whole, and begin as the tokenizer begins a text") {
    const Tokenizer tokenizer = Tokenizer::from_json(R"({"added_tokens": [
          {"id": 3, "content": "<s>", "special": true, "normalized": false}],
        "normalizer": null, "pre_tokenizer": null, "decoder": null,
        "post_processor": {"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})",
                                                     "a test");
    const auto ids = [](const TextWindows& windows) {
      std::vector<std::int32_t> list;
      for (const TokenId token : windows.tokens) list.push_back(index(token));
      return list;
    };
    // <s> a b c a b c a | b c ...: the second window gives its first token for <s>, too.
    CHECK(ids(windows_of(tokenizer, "abcabcabcab", 5, 0)) ==
          std::vector<std::int32_t>{3, 0, 1, 2, 0, 3, 2, 0, 1, 2});
    CHECK(ids(windows_of(tokenizer, "abcabcabcab", 5, 1)) ==
          std::vector<std::int32_t>{3, 0, 1, 2, 0});
    CHECK(windows_of(tokenizer, "abc<s>", 4, 0).tokens[0] == TokenId{3});
    CHECK(error_text([&] { windows_of(tokenizer, "abc", 5, 0); }) ==
          "the text has 4 tokens, a window 5: give a longer text or a smaller --context");
  }
}

}  // namespace text_evaluation_test
