#include "app/bench/trace_requests.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace hyb;
using namespace hyb::app;

namespace {

/// Two turns of a conversation behind a system prompt, and a stranger behind the same one.
const std::vector<ReplayRequest> chat = {
    {.time_s = 10, .session = "a", .turn = 0, .prompt = {{1, 8}, {2, 4}}, .output = {{3, 6}}},
    {.time_s = 11, .session = "b", .turn = 0, .prompt = {{1, 8}, {4, 4}}, .output = {{5, 2}}},
    {.time_s = 14,
     .session = "a",
     .turn = 1,
     .prompt = {{1, 8}, {2, 4}, {3, 6}, {6, 2}},
     .output = {{7, 2}}}};

TraceOptions options(bool uses_times = false) {
  return {.terms = {}, .vocab = 1000, .uses_times = uses_times};
}

Completion answer(std::int32_t tokens) {
  Completion completion;
  for (std::int32_t i = 0; i < tokens; ++i) completion.tokens.push_back(TokenId{900 + i});
  return completion;
}

}  // namespace

TEST_SUITE("app/bench/trace_requests") {
  TEST_CASE("equal segments are equal tokens, others are others") {
    TraceRequests source(chat, options());
    const Request a = source.request(0), b = source.request(1);
    CHECK(a.prompt.size() == 12);
    CHECK(a.max_tokens == 6);
    CHECK(std::equal(a.prompt.begin(), a.prompt.begin() + 8, b.prompt.begin()));
    CHECK_FALSE(std::equal(a.prompt.begin() + 8, a.prompt.end(), b.prompt.begin() + 8));
  }

  TEST_CASE("a next turn waits for its answer and goes on from the tokens that were given") {
    TraceRequests source(chat, options());
    CHECK_FALSE(source.follows(0));
    CHECK_FALSE(source.follows(1));
    CHECK(source.follows(2) == std::size_t{0});
    const Request first = source.request(0);
    source.answered(0, answer(6));
    const Request next = source.request(2);
    REQUIRE(next.prompt.size() == 20);
    CHECK(std::equal(first.prompt.begin(), first.prompt.end(), next.prompt.begin()));
    for (std::int32_t i = 0; i < 6; ++i)
      CHECK(next.prompt[static_cast<std::size_t>(12 + i)] == TokenId{900 + i});
  }

  TEST_CASE("an answer that came out short leaves the prompt as long as the trace has it") {
    TraceRequests source(chat, options());
    source.answered(0, answer(2));
    const Request next = source.request(2);
    REQUIRE(next.prompt.size() == 20);
    CHECK(next.prompt[13] == TokenId{901});
    CHECK(next.prompt[14] != TokenId{902});
  }

  TEST_CASE("what stood in a prompt before it was answered stays what it was") {
    const std::vector<ReplayRequest> echo = {
        {.session = "", .prompt = {{1, 4}}, .output = {{1, 4}}},
        {.session = "", .prompt = {{1, 4}, {2, 1}}, .output = {{3, 1}}}};
    TraceRequests source(echo, options());
    const Request first = source.request(0);
    source.answered(0, answer(4));
    CHECK_FALSE(source.follows(1));
    CHECK(std::equal(first.prompt.begin(), first.prompt.end(), source.request(1).prompt.begin()));
  }

  TEST_CASE("times count from the first request; without them all are due at once") {
    CHECK(TraceRequests(chat, options(true)).due_s(2) == 4);
    CHECK(TraceRequests(chat, options()).due_s(2) == 0);
  }

  TEST_CASE("scaled down, what was shared is shared") {
    const std::vector<ReplayRequest> shorter = scaled_trace(chat, 4);
    TraceRequests source(shorter, options());
    const Request a = source.request(0), b = source.request(1);
    CHECK(a.prompt.size() == 3);
    CHECK(a.max_tokens == 2);
    CHECK(std::equal(a.prompt.begin(), a.prompt.begin() + 2, b.prompt.begin()));
    source.answered(0, answer(2));
    CHECK(source.request(2).prompt.size() == 2 + 1 + 2 + 1);
  }
}
