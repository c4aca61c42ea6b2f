#include "app/bench/work_item.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

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

  TEST_CASE("shared prefixes: groups of prompts, dealt in random order") {
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
