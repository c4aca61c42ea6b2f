#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "app/bench/statistics.h"
#include "app/bench/workload.h"
#include "core/base/error.h"

namespace workload_test {

using namespace hyb::app;
using doctest::Approx;

namespace {

Statistics gaps_of(double burstiness) {
  const std::vector<double> times = arrival_times(20'000, 4, burstiness, 17);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return statistics_of(gaps);
}

}  // namespace

TEST_SUITE("app/bench/arrivals") {
  TEST_CASE("requests ascend, and the last comes at count / rate") {
    for (const double burstiness : {0.2, 1.0, 5.0, static_cast<double>(INFINITY)}) {
      CAPTURE(burstiness);
      const std::vector<double> times = arrival_times(100, 8, burstiness, 3);
      CHECK(std::is_sorted(times.begin(), times.end()));
      CHECK(times.front() > 0);
      CHECK(times.back() == Approx(100.0 / 8));
      CHECK(times == arrival_times(100, 8, burstiness, 3));
    }
    CHECK(arrival_times(100, 8, 1, 3) != arrival_times(100, 8, 1, 4));
  }

  // A gamma distribution of shape k has a deviation of mean / sqrt(k).
  TEST_CASE("gaps spread as the burstiness says") {
    for (const double burstiness : {0.25, 1.0, 4.0}) {
      CAPTURE(burstiness);
      const Statistics gaps = gaps_of(burstiness);
      CHECK(gaps.mean == Approx(0.25).epsilon(0.01));
      CHECK(gaps.deviation == Approx(0.25 / std::sqrt(burstiness)).epsilon(0.05));
    }
    CHECK(gaps_of(INFINITY).deviation == Approx(0).epsilon(1e-6));
  }

  TEST_CASE("without a rate all come at once") {
    CHECK(arrival_times(3, INFINITY, 1, 1) == std::vector<double>{0, 0, 0});
    CHECK(arrival_times(0, 5, 1, 1).empty());
  }
}

using namespace hyb;

namespace {

using Tokens = std::vector<TokenId>;

PromptMaterial material() {
  PromptMaterial all = {.vocab = 50'000,
                        .terms = {},
                        .range_ratio = 0,
                        .tokenizer = nullptr,
                        .corpus = {},
                        .text = "",
                        .from_file = {}};
  all.terms.ignore_eos = true;
  return all;
}

RequestCase random_case() {
  RequestCase test;
  test.prompts = 20;
  test.input_tokens = 30;
  test.output_tokens = 5;
  return test;
}

}  // namespace

TEST_SUITE("app/bench/work_item") {
  TEST_CASE("no row and no repetition has another's prompts, and the same has the same") {
    std::set<Tokens> prompts;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      for (std::uint64_t row = 0; row < 3; ++row) {
        for (std::uint64_t repetition = 0; repetition < 3; ++repetition) {
          const DrawSeed draw = {seed, row, repetition};
          const std::vector<WorkItem> work = work_of(random_case(), material(), draw);
          REQUIRE(work.size() == 20);
          for (const WorkItem& item : work) {
            CHECK(item.request.prompt.size() == 30);
            CHECK(item.request.max_tokens == 5);
            CHECK(item.request.ignore_eos);
            CHECK(item.primed_tokens == 29);
            prompts.insert(Tokens(item.request.prompt.begin(), item.request.prompt.begin() + 4));
          }
          CHECK(work_of(random_case(), material(), draw)[7].request.prompt ==
                work[7].request.prompt);
        }
      }
    }
    CHECK(prompts.size() == 2 * 3 * 3 * 20);  // different from the first tokens on
  }

  TEST_CASE("lengths vary within the ratio, ids stay below the vocabulary") {
    PromptMaterial some = material();
    some.range_ratio = 0.5;
    some.vocab = 11;
    RequestCase test = random_case();
    test.prompts = 500;
    test.system_tokens = 3;
    std::set<std::size_t> lengths;
    for (const WorkItem& item : work_of(test, some, {})) {
      lengths.insert(item.request.prompt.size());
      for (const TokenId token : item.request.prompt) CHECK(index(token) < 11);
    }
    CHECK(*lengths.begin() == 3 + 15);
    CHECK(*lengths.rbegin() == 3 + 45);
  }

  TEST_CASE("shared prefixes: groups of prompts, in random order") {
    RequestCase test;
    test.dataset = Dataset::generated_shared_prefix;
    test.groups = 4;
    test.prompts = 5;
    test.system_tokens = 40;
    test.input_tokens = 6;
    test.output_tokens = 2;
    const std::vector<WorkItem> work = work_of(test, material(), {});
    REQUIRE(work.size() == 20);
    std::map<Tokens, int> groups;
    std::set<Tokens> prompts;
    for (const WorkItem& item : work) {
      const Tokens& prompt = item.request.prompt;
      CHECK(prompt.size() == 46);
      CHECK(item.primed_tokens == 40);
      CHECK(item.request.message_ends == std::vector<std::int32_t>{40});
      ++groups[Tokens(prompt.begin(), prompt.begin() + 40)];
      prompts.insert(prompt);
    }
    REQUIRE(groups.size() == 4);
    for (const auto& [prefix, count] : groups) CHECK(count == 5);
    CHECK(prompts.size() == 20);
    const auto prefix_of = [&](std::size_t i) {
      return Tokens(work[i].request.prompt.begin(), work[i].request.prompt.begin() + 40);
    };
    bool is_dealt = false;
    for (std::size_t i = 1; i < 5; ++i) is_dealt = is_dealt || prefix_of(i) != prefix_of(0);
    CHECK(is_dealt);
  }

  TEST_CASE("a corpus is cut anywhere, and has to be long enough") {
    PromptMaterial text = material();
    for (std::int32_t i = 0; i < 100; ++i) text.corpus.push_back(TokenId{i});
    RequestCase test = random_case();
    test.dataset = Dataset::corpus;
    std::set<std::int32_t> begins;
    for (const WorkItem& item : work_of(test, text, {})) {
      const Tokens& prompt = item.request.prompt;
      REQUIRE(prompt.size() == 30);
      CHECK(index(prompt[29]) == index(prompt[0]) + 29);
      begins.insert(index(prompt[0]));
    }
    CHECK(begins.size() > 5);
    test.input_tokens = 101;
    CHECK_THROWS_AS(work_of(test, text, {}), Error);
  }

  TEST_CASE("the next turn goes on from prompt and answer; what was not answered has none") {
    RequestCase test = random_case();
    test.prompts = 2;
    const std::vector<WorkItem> work = work_of(test, material(), {});
    const std::vector<Tokens> answers = {{}, {TokenId{1}, TokenId{2}}};
    const std::vector<WorkItem> turns = next_turns(work, answers, 4, material(), {});
    REQUIRE(turns.size() == 1);
    const Tokens& prompt = turns[0].request.prompt;
    REQUIRE(prompt.size() == 30 + 2 + 4);
    CHECK(std::equal(work[1].request.prompt.begin(), work[1].request.prompt.end(), prompt.begin()));
    CHECK(prompt[30] == TokenId{1});
    CHECK(turns[0].request.message_ends == std::vector<std::int32_t>{32});
  }
}

namespace {

/// Two turns of a conversation after a system prompt, and another conversation after the same one.
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

  TEST_CASE("the content of a prompt does not change after its answer") {
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

}  // namespace workload_test
