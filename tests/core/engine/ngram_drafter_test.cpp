#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "core/engine/ngram_drafter.h"
#include "tests/sim/random.h"

namespace engine_ngram_drafter_test {

using namespace hyb;

namespace {

std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char letter : text) tokens.push_back(TokenId{letter});
  return tokens;
}

std::string drafted(const NgramIndex& text, std::int32_t most) {
  std::vector<TokenId> drafts;
  text.draft(most, drafts);
  std::string letters;
  for (const TokenId token : drafts) letters += static_cast<char>(index(token));
  return letters;
}

NgramIndex text_of(std::string_view text) {
  NgramIndex result;
  result.append(tokens_of(text));
  return result;
}

ArrivalOrder sequence(std::int64_t request) { return {RequestId{request}, 0}; }

}  // namespace

TEST_SUITE("core/engine/ngram_drafter") {
  TEST_CASE("what followed the same tokens before is drafted") {
    CHECK(drafted(text_of("abcdef..abc"), 3) == "def");
    CHECK(drafted(text_of("abcdef..bc"), 3).empty());
    CHECK(drafted(text_of("ab"), 3).empty());
    CHECK(drafted(text_of(""), 3).empty());
    CHECK(drafted(text_of("abcdef..abc"), 1) == "d");
  }

  TEST_CASE("the longest match wins, and of equal ones the latest") {
    CHECK(drafted(text_of("xabc1 yabc2 zabc3 yabc"), 1) == "2");
    CHECK(drafted(text_of("qabc1 rabc2 sabc3 tabc"), 1) == "3");
  }

  TEST_CASE("what followed other places is guessed too, the longest match first") {
    const auto guesses = [](std::string_view text, std::int32_t most, std::int32_t count) {
      std::vector<TokenId> drafts;
      std::vector<std::vector<TokenId>> others;
      text_of(text).draft(most, count, drafts, others);
      std::string letters;
      for (const TokenId token : drafts) letters += static_cast<char>(index(token));
      for (const std::vector<TokenId>& other : others) {
        letters += '|';
        for (const TokenId token : other) letters += static_cast<char>(index(token));
      }
      return letters;
    };
    CHECK(guesses("xabc1 yabc2 zabc3 yabc", 1, 3) == "2|3|1");
    CHECK(guesses("xabc1 yabc2 zabc3 yabc", 1, 1) == "2|3");
    CHECK(guesses("xabc1 yabc2 zabc3 yabc", 1, 0) == "2");
    CHECK(guesses("xabc12yabc12zabc", 2, 3) == "12");
    CHECK(guesses("xabcd", 2, 3).empty());
  }

  TEST_CASE("a text that repeats itself goes on to do so") {
    CHECK(drafted(text_of("abcabcabc"), 7) == "abcabca");
    CHECK(drafted(text_of("aaaa"), 5) == "aaaaa");
  }

  TEST_CASE("no draft and no match reads across a break") {
    NgramIndex text = text_of("abcd");
    text.append_break();
    text.append(tokens_of("xyabc"));
    CHECK(drafted(text, 5) == "d");
    text.append(tokens_of("dxy"));
    CHECK(drafted(text, 5).empty());
  }

  TEST_CASE("what is appended bit by bit is found as in a text that is there at once") {
    sim::Random random(3);
    NgramIndex whole, bits;
    std::vector<TokenId> tokens;
    for (int i = 0; i < 5000; ++i) {
      // Every few tokens a run from before.
      if (tokens.size() > 50 && random.chance(10)) {
        const std::size_t from = random.below(tokens.size() - 20);
        for (std::size_t j = 0; j < 10; ++j) tokens.push_back(TokenId{tokens[from + j]});
      }
      tokens.push_back(TokenId{random.between(0, 200)});
    }
    whole.append(tokens);
    for (const TokenId token : tokens) bits.append(std::span(&token, 1));
    std::vector<TokenId> one, other;
    int found = 0, right = 0;
    for (int i = 0; i < 2000; ++i) {
      const TokenId next = tokens[static_cast<std::size_t>(i)];
      whole.append(std::span(&next, 1));
      bits.append(std::span(&next, 1));
      whole.draft(3, one);
      bits.draft(3, other);
      REQUIRE(one == other);
      if (one.empty()) continue;
      ++found;
      if (one.front() == tokens[static_cast<std::size_t>(i) + 1]) ++right;
    }
    CHECK(found > 1000);
    CHECK(right > found * 7 / 10);
  }

  TEST_CASE("before a match is whole, one more token may make it so") {
    NgramIndex text = text_of("abcd..ab");
    CHECK(text.may_draft_after_next());
    CHECK(drafted(text, 3).empty());
    text.append(tokens_of("c"));
    CHECK(drafted(text, 3) == "d..");
    CHECK_FALSE(text_of("abcd..xy").may_draft_after_next());
  }

  TEST_CASE("sequences have texts of their own, and what others had after the same tokens") {
    int asked = 0;
    NgramDrafter drafter([&](std::span<const TokenId> known) {
      ++asked;
      return known.front() == TokenId{'q'} ? tokens_of("abcdef") : std::vector<TokenId>();
    });
    const std::vector<TokenId> first = tokens_of("q: abc"), second = tokens_of("p: abc");
    std::vector<DraftJob> jobs = {{.sequence = sequence(1), .tokens = first, .most = 3},
                                  {.sequence = sequence(2), .tokens = second, .most = 3}};
    drafter.draft(jobs);
    CHECK(jobs[0].drafts == tokens_of("def"));
    CHECK(jobs[1].drafts.empty());
    const std::vector<TokenId> longer = tokens_of("q: abcde");
    jobs = {{.sequence = sequence(1), .tokens = longer, .most = 3}};
    drafter.draft(jobs);
    CHECK(jobs[0].drafts == tokens_of("f"));
    CHECK(drafter.may_draft_after_next(sequence(1), longer));
    CHECK(asked == 2);
    drafter.forget(sequence(1));
    drafter.draft(jobs);
    CHECK(asked == 3);
  }
}

}  // namespace engine_ngram_drafter_test
