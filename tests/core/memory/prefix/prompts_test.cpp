#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/memory/prefix/prompts.h"

namespace prefix_prompts_test {

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

std::int32_t see(PromptHistory& seen, const Prompt& prompt) { return seen.remember(prompt, 1000); }

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
    PromptHistory seen(1000);
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
      PromptHistory seen(100000);
      std::vector<Prompt> earlier;
      for (int i = 0; i < 200; ++i) {
        const Prompt prompt = random_prompt(random);
        CHECK(seen.remember(prompt, 1000) == branch_among(earlier, prompt));
        earlier.push_back(prompt);
      }
    }
  }

  TEST_CASE("forgets what was seen longest ago, and no more than it has to") {
    PromptHistory seen(10);
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

  TEST_CASE("a limited number of endings is kept, the latest ones") {
    PromptHistory seen(1000);
    seen.remember(prompt_of({1, 1, 1}), 2);
    seen.remember(prompt_of({2, 2, 2}), 2);
    seen.remember(prompt_of({3, 3, 3}), 2);
    CHECK(seen.tokens() == 6);
    CHECK(see(seen, prompt_of({1, 1, 4})) == 0);
    CHECK(see(seen, prompt_of({2, 2, 4})) == 2);
    CHECK(see(seen, prompt_of({3, 3, 4})) == 2);
  }

  TEST_CASE("random prompts under a limit: a branch is a common prefix, and the limit holds") {
    std::mt19937 random(2);
    PromptHistory seen(40);
    std::vector<Prompt> earlier;
    int branches = 0;
    for (int i = 0; i < 3000; ++i) {
      const Prompt prompt = random_prompt(random);
      const std::int32_t branch = seen.remember(prompt, 1000);
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

namespace {

/// Prompts in order, a letter per token.
struct Prompts {
  explicit Prompts(std::vector<std::string> all) : texts(std::move(all)) {
    std::sort(texts.begin(), texts.end());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      lengths.push_back(static_cast<std::int32_t>(texts[i].size()));
      common.push_back(i == 0 ? 0 : shared(i - 1, i));
    }
  }

  std::int32_t shared(std::size_t a, std::size_t b) const {
    std::size_t length = 0;
    while (length < std::min(texts[a].size(), texts[b].size()) &&
           texts[a][length] == texts[b][length]) {
      ++length;
    }
    return static_cast<std::int32_t>(length);
  }

  std::vector<std::string> texts;
  std::vector<std::int32_t> lengths, common;
};

/// Words of 20 letters, one of three at every level.
Prompts random_prompts(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (int level = 1 + static_cast<int>(random() % 12); level > 0; --level) {
      text += std::string(20, static_cast<char>('a' + random() % 3));
    }
    texts.push_back(text);
  }
  return Prompts(texts);
}

}  // namespace

TEST_SUITE("core/memory/prompt_plan") {
  TEST_CASE("what is needed later is what any later prompt has") {
    const Prompts prompts = random_prompts(1, 80);
    const auto plans = plan_depth_first(prompts.lengths, prompts.common);
    REQUIRE(plans.size() == 80);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      std::int32_t needed = 0;
      for (std::size_t j = i + 1; j < plans.size(); ++j) {
        needed = std::max(needed, prompts.shared(i, j));
      }
      CHECK(plans[i].needed_later == needed);
    }
  }

  TEST_CASE("every cut is of use to a later prompt, and lies within the prompt") {
    for (unsigned seed = 2; seed < 6; ++seed) {
      const Prompts prompts = random_prompts(seed, 100);
      const auto plans = plan_depth_first(prompts.lengths, prompts.common);
      for (std::size_t i = 0; i < plans.size(); ++i) {
        std::int32_t last = 0;
        for (const std::int32_t cut : plans[i].cuts) {
          CHECK(cut - last >= cut_tokens_min);
          CHECK(cut < prompts.lengths[i]);
          CHECK(cut <= plans[i].needed_later);
          last = cut;
        }
      }
    }
  }

  TEST_CASE("a prompt that could keep nothing is made up for by the next of its group") {
    const std::string group(30, 'g');
    const Prompts prompts({group + "a", group + "b", group + "c", group + "d", "other"});
    const auto plans = plan_depth_first(prompts.lengths, prompts.common);
    for (std::size_t i = 0; i < 3; ++i) CHECK(plans[i].cuts == std::vector<std::int32_t>{30});
    CHECK(plans[3].cuts.empty());  // the last one
    CHECK(plans[4].cuts.empty());
  }

  TEST_CASE("a long line of prompts that go on is no long list of cuts") {
    std::vector<std::string> line;
    for (std::size_t i = 1; i <= 60; ++i) line.push_back(std::string(20 * i, 'a'));
    const Prompts prompts(line);
    const auto plans = plan_depth_first(prompts.lengths, prompts.common);
    for (std::size_t i = 0; i + 1 < plans.size(); ++i) {
      CHECK(plans[i].cuts.size() <= 9);
      REQUIRE_FALSE(plans[i].cuts.empty());
      CHECK(plans[i].cuts.back() == prompts.lengths[i] - 1);
    }
    CHECK(plans.back().cuts.empty());
  }

  TEST_CASE("nothing to plan") { CHECK(plan_depth_first({}, {}).empty()); }
}

}  // namespace prefix_prompts_test
