#include "core/memory/seen_prompts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace hyb;

namespace {

using Prompt = std::vector<TokenId>;

Prompt prompt_of(const std::vector<int>& tokens) {
  Prompt prompt;
  for (const int token : tokens) prompt.push_back(TokenId{token});
  return prompt;
}

std::size_t common(const Prompt& a, const Prompt& b) {
  std::size_t length = 0;
  while (length < a.size() && length < b.size() && a[length] == b[length]) ++length;
  return length;
}

/// The definition: all prompts so far, one by one.
std::int32_t branch_among(const std::vector<Prompt>& earlier, const Prompt& prompt) {
  std::size_t longest = 0;
  for (const Prompt& one : earlier) longest = std::max(longest, common(one, prompt));
  if (longest == prompt.size()) return 0;
  for (const Prompt& one : earlier) {
    if (one.size() == longest && common(one, prompt) == longest) return 0;
  }
  return static_cast<std::int32_t>(longest);
}

std::int32_t see(SeenPrompts& seen, const Prompt& prompt) { return seen.see(prompt, 1000); }

Prompt random_prompt(std::mt19937& random) {
  Prompt prompt;
  for (int left = 1 + static_cast<int>(random() % 8); left > 0; --left) {
    const int token = static_cast<int>(random() % 3);
    prompt.insert(prompt.end(), 1 + random() % 4, TokenId{token});
  }
  return prompt;
}

}  // namespace

TEST_SUITE("core/memory/seen_prompts") {
  TEST_CASE("a branch is where prompts part, not where one ended") {
    SeenPrompts seen(1000);
    CHECK(see(seen, prompt_of({1, 2, 3, 4})) == 0);
    CHECK(see(seen, prompt_of({1, 2, 5})) == 2);
    CHECK(see(seen, prompt_of({1, 2, 3, 4, 6, 7})) == 0);  // the next turn of the first
    CHECK(see(seen, prompt_of({1, 2, 3, 4, 8})) == 0);     // the same turn once more
    CHECK(see(seen, prompt_of({1, 2, 3})) == 0);           // is all there
    CHECK(see(seen, prompt_of({9})) == 0);
    CHECK(see(seen, {}) == 0);
    CHECK(seen.tokens() == 4 + 1 + 2 + 1 + 1);
  }

  TEST_CASE("random prompts: as the definition says while nothing is forgotten") {
    std::mt19937 random(1);
    for (int round = 0; round < 20; ++round) {
      SeenPrompts seen(100000);
      std::vector<Prompt> earlier;
      for (int i = 0; i < 200; ++i) {
        const Prompt prompt = random_prompt(random);
        CHECK(seen.see(prompt, 1000) == branch_among(earlier, prompt));
        earlier.push_back(prompt);
      }
    }
  }

  TEST_CASE("forgets what was seen longest ago, and no more than it has to") {
    SeenPrompts seen(10);
    see(seen, prompt_of({1, 1, 1, 1}));
    see(seen, prompt_of({2, 2, 2, 2}));
    see(seen, prompt_of({1, 1, 1, 1}));  // again
    see(seen, prompt_of({3, 3, 3, 3}));
    CHECK(seen.tokens() == 8);                       // the twos are gone
    CHECK(see(seen, prompt_of({2, 2, 5, 5})) == 0);  // and now the ones are
    CHECK(see(seen, prompt_of({3, 3, 3, 4})) == 3);
    CHECK(seen.tokens() == 5 + 4);
    CHECK(see(seen, prompt_of(std::vector<int>(11, 7))) == 0);
    CHECK(see(seen, prompt_of({7, 7, 8})) == 0);  // more than the limit was not remembered
  }

  TEST_CASE("so many endings are remembered, those seen last") {
    SeenPrompts seen(1000);
    seen.see(prompt_of({1, 1, 1}), 2);
    seen.see(prompt_of({2, 2, 2}), 2);
    seen.see(prompt_of({3, 3, 3}), 2);
    CHECK(seen.tokens() == 6);
    CHECK(see(seen, prompt_of({1, 1, 4})) == 0);
    CHECK(see(seen, prompt_of({2, 2, 4})) == 2);
    CHECK(see(seen, prompt_of({3, 3, 4})) == 2);
  }

  TEST_CASE("random prompts under a limit: a branch is a common prefix, and the limit holds") {
    std::mt19937 random(2);
    SeenPrompts seen(40);
    std::vector<Prompt> earlier;
    int branches = 0;
    for (int i = 0; i < 3000; ++i) {
      const Prompt prompt = random_prompt(random);
      const std::int32_t branch = seen.see(prompt, 1000);
      CHECK(seen.tokens() <= 40);
      CHECK(branch < static_cast<std::int32_t>(prompt.size()));
      if (branch > 0) ++branches;
      const bool was_there = std::any_of(earlier.begin(), earlier.end(), [&](const Prompt& one) {
        return common(one, prompt) >= static_cast<std::size_t>(branch);
      });
      CHECK((branch == 0 || was_there));
      earlier.push_back(prompt);
    }
    CHECK(branches > 300);
  }
}
