#include "core/engine/prefill_watch.h"

#include <doctest/doctest.h>

#include <vector>

namespace prefill_watch_test {

using namespace hyb;

namespace {

constexpr PrefillCost guess = {.linear = 1e-4};
constexpr PrefillCost truth = {.linear = 2e-3, .square = 1e-6};

/// Steps that take as long as the truth says.
class Steps {
 public:
  static Span span_of(std::span<const TokenId> tokens, std::int32_t position) {
    Span span{};
    span.tokens = tokens;
    span.position = position;
    return span;
  }

  /// A chunk of a prompt, with sequences that run one token each.
  std::optional<PrefillCost> run(std::int32_t position, std::size_t tokens, std::size_t single,
                                 double slower = 1) {
    Step step;
    const std::vector<TokenId> ids(tokens, TokenId{1});
    step.spans.push_back(span_of(ids, position));
    const auto length = position + static_cast<std::int32_t>(tokens);
    double seconds = truth.of(length) - truth.of(position);
    for (std::size_t i = 0; i < single; ++i) {
      step.spans.push_back(span_of(std::span(ids).first(1), 50));
      seconds += truth.of(51) - truth.of(50);
    }
    return watch_.ran(step, std::chrono::duration<double>(slower * seconds));
  }

 private:
  PrefillWatch watch_{guess, 256, 20000};
};

}  // namespace

TEST_SUITE("core/engine/prefill_watch") {
  TEST_CASE("a cost far off is corrected at once, and then kept") {
    Steps steps;
    std::optional<PrefillCost> last;
    int changes = 0;
    for (std::int32_t position = 0; position < 8192; position += 256) {
      const std::optional<PrefillCost> cost = steps.run(position, 256, 3);
      if (!cost) continue;
      last = cost;
      ++changes;
    }
    REQUIRE(last);
    CHECK(changes <= 4);
    for (const std::int32_t length : {1000, 8000, 20000}) {
      CHECK(last->of(length) == doctest::Approx(truth.of(length)).epsilon(0.1));
    }
    for (int i = 0; i < 500; ++i) CHECK_FALSE(steps.run(i, 256, 3, i % 2 == 0 ? 0.95 : 1.05));
  }

  TEST_CASE("steps of few tokens, or of many single ones, say nothing") {
    Steps steps;
    for (int i = 0; i < 500; ++i) {
      CHECK_FALSE(steps.run(i, 15, 0));
      CHECK_FALSE(steps.run(i, 100, 50));
    }
  }
}

}  // namespace prefill_watch_test
