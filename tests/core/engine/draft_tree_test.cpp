#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/engine/draft_tree.h"

namespace engine_draft_tree_test {

using namespace hyb;

namespace {

/// A draft and what else is likely in its place.
SampledToken draft(char token, double share, std::vector<std::pair<char, double>> others = {}) {
  SampledToken sampled = {.token = TokenId{token},
                          .logprob = static_cast<float>(std::log(share)),
                          .top = {{TokenId{token}, static_cast<float>(std::log(share))}}};
  for (const auto& [other, likely] : others) {
    sampled.top.push_back({TokenId{other}, static_cast<float>(std::log(likely))});
  }
  return sampled;
}

std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char letter : text) tokens.push_back(TokenId{letter});
  return tokens;
}

/// "abc a|x" is a path and a branch that shares its first token.
std::string text_of(const std::vector<DraftPath>& paths) {
  std::string text;
  for (const DraftPath& path : paths) {
    if (!text.empty()) text += ' ';
    for (std::size_t i = 0; i < path.drafts.size(); ++i) {
      if (i == static_cast<std::size_t>(path.shared) && i > 0) text += '|';
      text += static_cast<char>(index(path.drafts[i]));
    }
  }
  return text;
}

std::string tree(const std::vector<SampledToken>& drafts, std::int32_t branches,
                 std::int32_t rows) {
  return text_of(tree_of(drafts, {.branches = branches, .rows = rows}));
}

std::string tree_of_guesses(const std::vector<std::string>& guesses, std::int32_t branches,
                            std::int32_t rows) {
  std::vector<std::vector<TokenId>> all;
  for (const std::string& guess : guesses) all.push_back(tokens_of(guess));
  return text_of(tree_of(all, {.branches = branches, .rows = rows}));
}

}  // namespace

TEST_SUITE("core/engine/draft_tree") {
  TEST_CASE("drafts that are sure stay a chain") {
    const std::vector<SampledToken> sure = {draft('a', 0.95, {{'x', 0.01}}), draft('b', 0.95),
                                            draft('c', 0.95), draft('d', 0.95)};
    CHECK(tree(sure, 4, 5) == "abcd");
    CHECK(tree(sure, 4, 4) == "abc");
    CHECK(tree(sure, 4, 2) == "a");
    CHECK(tree({}, 4, 8).empty());
  }

  TEST_CASE("what is as likely in a draft's place is a branch, before less likely drafts") {
    const std::vector<SampledToken> unsure = {draft('a', 0.4, {{'x', 0.35}, {'y', 0.2}}),
                                              draft('b', 0.3), draft('c', 0.3), draft('d', 0.3)};
    // In likelihood by row: x 0.175, b 0.12, y 0.1, c 0.036.
    CHECK(tree(unsure, 4, 4) == "a x");
    CHECK(tree(unsure, 4, 5) == "ab x");
    CHECK(tree(unsure, 4, 8) == "abc x y");
    CHECK(tree(unsure, 2, 8) == "abcd x");
    CHECK(tree(unsure, 1, 8) == "abcd");
  }

  TEST_CASE("a branch shares the drafts before it and costs their rows") {
    const std::vector<SampledToken> late = {draft('a', 1), draft('b', 1),
                                            draft('c', 0.5, {{'x', 0.45}}), draft('d', 0.05)};
    CHECK(tree(late, 2, 7) == "abcd");
    CHECK(tree(late, 2, 8) == "abc ab|x");
    CHECK(tree(late, 2, 9) == "abcd ab|x");
  }

  TEST_CASE("guesses without odds: the first whole, of others what there are rows for") {
    CHECK(tree_of_guesses({"abcd", "axyz", "axqq"}, 4, 100) == "abcd a|xyz ax|qq");
    CHECK(tree_of_guesses({"abcd", "axyz", "axqq"}, 4, 9) == "abcd a|xy");
    CHECK(tree_of_guesses({"abcd", "axyz", "axqq"}, 2, 100) == "abcd a|xyz");
    CHECK(tree_of_guesses({"abcd", "ax", "q"}, 4, 7) == "abcd q");
    CHECK(tree_of_guesses({"abcd", "abcd", "abx"}, 4, 100) == "abcd ab|x");
    CHECK(tree_of_guesses({"ab", "abcd"}, 4, 100) == "ab ab|cd");
    CHECK(tree_of_guesses({"abcd", "axyz"}, 4, 5) == "abcd");
    CHECK(tree_of_guesses({"", "a"}, 4, 9).empty());
  }
}

}  // namespace engine_draft_tree_test
