#include "core/memory/prompt_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

using namespace hyb;

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
