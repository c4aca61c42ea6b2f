#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "app/bench/load_driver.h"
#include "app/bench/request_bench.h"
#include "core/base/error.h"
#include "tests/app/bench/clock_runner.h"

namespace request_bench_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

const FullAttention full;

/// 40 superblocks of 16 pages or 4 slots.
MemoryLayout elastic() {
  return {.page_tokens = 4,
          .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 16}},
          .slots = {.bytes = 40, .per_superblock = 4},
          .packed = {},
          .superblock_bytes = 160,
          .superblocks = 40,
          .fixed_superblocks = {}};
}

struct Fixture {
  explicit Fixture(MemoryLayout layout) { runner.memory = std::move(layout); }
  FakeTimer timer;
  ClockRunner runner{timer};
};

}  // namespace

TEST_SUITE("app/bench/right_drafts") {
  const std::vector<TokenId> prompt(3, TokenId{9});
  const std::vector<TokenId> answer = {TokenId{4}, TokenId{5}, TokenId{6}, TokenId{7}};

  std::vector<TokenId> known(std::size_t drawn) {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), answer.begin(),
                  answer.begin() + static_cast<std::ptrdiff_t>(drawn));
    return tokens;
  }

  TEST_CASE("they go on with the answer of their own request, up to its end") {
    RightDrafts drafter({{TokenId{1}}, answer}, 1.0, 10, 1);
    const ArrivalOrder sequence{RequestId{5}, 0};
    drafter.add(sequence.request, 1, prompt);
    for (std::size_t drawn = 0; drawn <= answer.size(); ++drawn) {
      CAPTURE(drawn);
      const std::vector<TokenId> tokens = known(drawn);
      std::vector<DraftJob> jobs(1);
      jobs[0] = {.sequence = sequence, .tokens = tokens, .most = 2};
      drafter.draft(jobs);
      const std::size_t end = std::min(drawn + 2, answer.size());
      CHECK(std::ranges::equal(jobs[0].drafts, std::span(answer).subspan(drawn, end - drawn)));
      CHECK(drafter.may_draft_after_next(sequence, tokens) == (drawn + 2 < answer.size()));
    }
  }

  TEST_CASE("they take the place of what a model drafted, up to the answer's end") {
    RightDrafts drafter({{TokenId{1}}, answer}, 1.0, 10, 1);
    drafter.add(RequestId{5}, 1, prompt);
    const SamplingParams params;
    const std::vector<TokenId> unknown(4, TokenId{2}), early = known(1), late = known(3);
    Step step;
    std::vector<std::vector<SampledToken>> drafts;
    for (const std::vector<TokenId>* const tokens : {&early, &unknown, &late}) {
      step.spans.push_back({.tokens = {},
                            .position = 0,
                            .tables = {},
                            .read_slot = no_slot,
                            .write_slot = no_slot,
                            .samples = {{.token = 0,
                                         .params = &params,
                                         .draw = 0,
                                         .history = *tokens,
                                         .prompt_tokens = 3}}});
      drafts.emplace_back(2, SampledToken{.token = TokenId{8}, .top = {}});
    }
    drafter.replace(step, drafts);
    REQUIRE(drafts[0].size() == 2);
    CHECK(drafts[0][0].token == TokenId{5});
    CHECK(drafts[0][1].token == TokenId{6});
    CHECK(drafts[1].empty());
    REQUIRE(drafts[2].size() == 1);
    CHECK(drafts[2][0].token == TokenId{7});
  }

  TEST_CASE("of requests that are not known there are none") {
    RightDrafts drafter({answer}, 1.0, 10, 1);
    const ArrivalOrder sequence{RequestId{5}, 0};
    std::vector<DraftJob> jobs(1);
    jobs[0] = {.sequence = sequence, .tokens = prompt, .most = 7};
    drafter.draft(jobs);
    CHECK(jobs[0].drafts.empty());
    CHECK(!drafter.may_draft_after_next(sequence, prompt));
  }

  TEST_CASE("a share of them is right") {
    RightDrafts drafter({std::vector<TokenId>(2000, TokenId{9})}, 0.75, 10, 1);
    const ArrivalOrder sequence{RequestId{5}, 0};
    drafter.add(sequence.request, 0, prompt);
    std::vector<DraftJob> jobs(1);
    jobs[0] = {.sequence = sequence, .tokens = prompt, .most = 2000};
    drafter.draft(jobs);
    const auto right = std::ranges::count(jobs[0].drafts, TokenId{9});
    CHECK(right > 1400);
    CHECK(right < 1600);
    CHECK(right + std::ranges::count(jobs[0].drafts, TokenId{0}) == 2000);
    CHECK(jobs[0].likely.empty());
  }

  TEST_CASE("of several tokens in one place each is right as often where those before are wrong") {
    RightDrafts drafter({std::vector<TokenId>(4000, TokenId{9})}, 0.5, 10, 1);
    const ArrivalOrder sequence{RequestId{5}, 0};
    drafter.add(sequence.request, 0, prompt);
    std::vector<DraftJob> jobs(1);
    jobs[0] = {.sequence = sequence, .tokens = prompt, .most = 4000, .guesses = 3};
    drafter.draft(jobs);
    REQUIRE(jobs[0].likely.size() == 4000);
    std::vector<int> right(3);
    for (std::size_t i = 0; i < jobs[0].likely.size(); ++i) {
      const SampledToken& draft = jobs[0].likely[i];
      REQUIRE(draft.top.size() == 3);
      CHECK(draft.token == jobs[0].drafts[i]);
      CHECK(draft.token == draft.top[0].token);
      CHECK(std::exp(draft.logprob) == doctest::Approx(0.5));
      CHECK(std::exp(draft.top[2].logprob) == doctest::Approx(0.125));
      std::set<TokenId> different;
      for (std::size_t place = 0; place < draft.top.size(); ++place) {
        different.insert(draft.top[place].token);
        right[place] += draft.top[place].token == TokenId{9} ? 1 : 0;
      }
      CHECK(different.size() == 3);
    }
    CHECK(std::abs(right[0] - 2000) < 150);
    CHECK(std::abs(right[1] - 1000) < 150);
    CHECK(std::abs(right[2] - 500) < 100);
  }
}

TEST_SUITE("app/bench/scrambled_pool") {
  TEST_CASE("pages that follow each other lie apart, and all come back in the end") {
    Fixture fixture(elastic());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    const auto leaps = [&] {
      std::optional<Memory> memory = engine.pool().start();
      REQUIRE(memory);
      REQUIRE(memory->reserve(80));
      int count = 0;
      const PageTable& pages = memory->tables()[0];
      for (std::size_t i = 1; i < pages.size(); ++i) {
        count += std::abs(index(pages[i]) - index(pages[i - 1])) != 1;
      }
      return count;
    };
    const int before = leaps();
    {
      const ScrambledPool pieces(engine, 5);
      CHECK(pieces.held() > 0);
      CHECK(leaps() > before);
    }
    CHECK(engine.pool().all_free());
  }

  TEST_CASE("requests run in it as ever") {
    Fixture fixture(elastic());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    const ScrambledPool pieces(engine, 6);
    ListSource source({{.prompt = 30, .answer = 3}, {.prompt = 50, .answer = 2}});
    LoadDriverOptions options;
    const LoadResult result = run_load(engine, source, fixture.timer, options);
    for (const RequestRecord& record : result.records) CHECK(record.is_answered());
  }

  TEST_CASE("fixed pools can't be scattered") {
    Fixture fixture(ClockRunner::flat());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    CHECK_THROWS_AS(ScrambledPool(engine, 1), Error);
  }
}

}  // namespace request_bench_test
