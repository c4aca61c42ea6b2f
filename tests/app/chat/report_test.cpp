#include "app/chat/report.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace std::chrono_literals;

namespace {

Answer answer() {
  Answer answer;
  answer.completion.usage = {.prompt_tokens = 37,
                             .prefilled_tokens = 37,
                             .completion_tokens = 11,
                             .queued = 1ms,
                             .prefill = 99ms,
                             .decode = 500ms};
  return answer;
}

}  // namespace

TEST_SUITE("app/chat/report") {
  TEST_CASE("the status line, plain and not") {
    CHECK(status_line(answer(), false) == "[reused 0, prefilled 37, 11 tokens, 20.0 tok/s]");
    CHECK(status_line(answer(), true) == "[reused 0 · prefilled 37 · 11 tokens · 20.0 tok/s]");
    Answer stopped = answer();
    stopped.was_stopped = true;
    stopped.completion.usage.completion_tokens = 1;
    CHECK(status_line(stopped, false) == "[stopped, reused 0, prefilled 37, 1 token]");
  }

  TEST_CASE("no rate without a second token or without time") {
    CHECK(tokens_per_second(answer().completion.usage) == doctest::Approx(20.0));
    CHECK(tokens_per_second({.completion_tokens = 1, .decode = 1s}) == 0.0);
    CHECK(tokens_per_second({.completion_tokens = 9}) == 0.0);
  }

  TEST_CASE("stats sum up") {
    ChatTotals totals;
    totals.add(answer().completion.usage);
    totals.add(answer().completion.usage);
    const std::string text = stats_text(answer(), totals);
    CHECK(testing::contains(text, "0 reused, 37 prefilled"));
    CHECK(testing::contains(text, "0.100 s"));
    CHECK(testing::contains(text, "2 answers: 0 reused, 74 prefilled, 22 generated"));
  }
}
