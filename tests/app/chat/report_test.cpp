#include "app/chat/report.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace std::chrono_literals;

namespace {

Answer answer() {
  Answer answer;
  Usage& usage = answer.completion.usage;
  usage.prompt_tokens = 37;
  usage.prefilled_tokens = 37;
  usage.completion_tokens = 11;
  usage.queued = 1ms;
  usage.prefill = 99ms;
  usage.decode = 500ms;
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

  TEST_CASE("why no more was reused") {
    Answer known = answer();
    Usage& usage = known.completion.usage;
    usage.reuse_limit = ReuseLimit::no_snapshot;
    usage.matched_tokens = 30;
    usage.reused_tokens = 20;
    usage.prefilled_tokens = 17;
    CHECK(status_line(known, false) ==
          "[reused 20, prefilled 17 (no snapshot there), 11 tokens, 20.0 tok/s]");
    CHECK(testing::contains(stats_text(known, {}), "30 tokens (10 not reused), no snapshot there"));
    usage.reused_from = SnapshotSource::memory;
    CHECK_FALSE(testing::contains(status_line(known, false), "from"));
    usage.reused_from = SnapshotSource::disk;
    CHECK(testing::contains(status_line(known, false), "(no snapshot there, from disk)"));
    usage.reused_from = SnapshotSource::session;
    CHECK(testing::contains(status_line(known, false), ", from the session file)"));
    usage.resumed_packed = true;
    CHECK(testing::contains(status_line(known, false), "from an int8 snapshot)"));
    CHECK(testing::contains(stats_text(known, {}), ", from an int8 snapshot\n"));
    CHECK(testing::contains(stats_text(known, {.ahead_tokens = 7}), "7 tokens run while"));
    CHECK_FALSE(testing::contains(stats_text(known, {}), "while you typed"));
  }

  TEST_CASE("no rate without a second token or without time") {
    CHECK(tokens_per_second(answer().completion.usage) == doctest::Approx(20.0));
    Usage usage;
    usage.completion_tokens = 9;
    CHECK(tokens_per_second(usage) == 0.0);
    usage.completion_tokens = 1;
    usage.decode = 1s;
    CHECK(tokens_per_second(usage) == 0.0);
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
