#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/batch/batch_runner.h"
#include "app/ui/progress.h"
#include "core/base/ids.h"
#include "tests/support/error_text.h"

namespace batch_runner_test {

using namespace hyb;
using namespace hyb::app;

namespace {

using Prompt = std::vector<TokenId>;

/// A prompt of runs of the same token, such as "a20 b7".
Prompt runs(const std::vector<std::pair<int, int>>& parts) {
  Prompt prompt;
  for (const auto& [token, count] : parts) {
    prompt.insert(prompt.end(), static_cast<std::size_t>(count), TokenId{token});
  }
  return prompt;
}

/// What a run of the plan reuses when snapshots are only where it cut: the slow definition.
std::int64_t reused(const PrefixPlan& plan, const std::vector<Prompt>& prompts) {
  std::set<Prompt> snapshots;
  std::int64_t total = 0;
  for (const PrefixPlan::Entry& entry : plan.entries) {
    const Prompt& prompt = prompts[entry.prompt];
    for (std::size_t length = prompt.empty() ? 0 : prompt.size() - 1; length > 0; --length) {
      const auto end = prompt.begin() + static_cast<std::ptrdiff_t>(length);
      if (!snapshots.contains(Prompt(prompt.begin(), end))) continue;
      total += static_cast<std::int64_t>(length);
      break;
    }
    for (const std::int32_t cut : entry.plan.cuts) {
      snapshots.insert(Prompt(prompt.begin(), prompt.begin() + cut));
    }
  }
  return total;
}

}  // namespace

TEST_SUITE("app/batch/batch_plan") {
  TEST_CASE("lines that fail are no measure of the time that answers take") {
    using namespace std::chrono_literals;
    const BatchCounts failed = {.done = 20, .failed = 20}, one = {.done = 21, .failed = 20};
    CHECK(time_left_text(shown_progress(failed, 5, 35), 2s) == "");
    CHECK(time_left_text(shown_progress(one, 5, 35), 2s) == "18 s left");
  }

  TEST_CASE("prompts with a common prefix are adjacent, cut where they differ") {
    const std::vector<Prompt> prompts = {runs({{1, 40}, {2, 30}, {3, 5}}), runs({{9, 50}}),
                                         runs({{1, 40}, {4, 9}}), runs({{1, 40}, {2, 30}, {5, 5}})};
    const PrefixPlan plan = plan_prefixes(prompts);
    REQUIRE(plan.entries.size() == 4);
    std::vector<std::size_t> order;
    for (const auto& entry : plan.entries) order.push_back(entry.prompt);
    CHECK(order == std::vector<std::size_t>{0, 3, 2, 1});
    CHECK(plan.entries[0].plan.cuts == std::vector<std::int32_t>{40, 70});
    CHECK(plan.entries[1].plan.cuts == std::vector<std::int32_t>{40});  // should it be gone
    for (std::size_t i = 2; i < 4; ++i) CHECK(plan.entries[i].plan.cuts.empty());
    std::vector<std::int32_t> needed_later;
    for (const auto& entry : plan.entries) needed_later.push_back(entry.plan.needed_later);
    CHECK(needed_later == std::vector<std::int32_t>{70, 40, 0, 0});
    CHECK(plan.prompt_tokens == 75 + 50 + 49 + 75);
    CHECK(plan.sharable_tokens == 70 + 40);
  }

  TEST_CASE("one that is a prefix of another, and the same twice") {
    const std::vector<Prompt> prompts = {runs({{1, 40}}), runs({{1, 40}, {2, 9}}), runs({{1, 40}})};
    const PrefixPlan plan = plan_prefixes(prompts);
    CHECK(plan.entries[0].plan.cuts == std::vector<std::int32_t>{39});
    CHECK(plan.sharable_tokens == 39 + 40);
    CHECK(reused(plan, prompts) == 39 + 39);
  }

  TEST_CASE("nothing to plan") {
    CHECK(plan_prefixes({}).entries.empty());
    const std::vector<Prompt> prompts = {{}, {TokenId{1}}, {TokenId{1}}, {}};
    const PrefixPlan plan = plan_prefixes(prompts);
    CHECK(plan.entries.size() == 4);
    CHECK(plan.sharable_tokens == 0);
    for (const auto& entry : plan.entries) CHECK(entry.plan.cuts.empty());
  }

  TEST_CASE("random trees: every prompt once, and reuse as near to the bound as cuts are apart") {
    std::mt19937 random(5);
    for (int round = 0; round < 60; ++round) {
      std::vector<Prompt> prompts;
      const int fan = 1 + static_cast<int>(random() % 4);
      const int run_max = round % 2 == 0 ? 60 : 8;
      for (int i = 0; i < 60; ++i) {
        Prompt prompt;
        for (int level = static_cast<int>(random() % 5); level >= 0; --level) {
          const int token = static_cast<int>(random() % static_cast<unsigned>(fan));
          const int length = 1 + (token * 13 + level * 7) % run_max;
          prompt.insert(prompt.end(), static_cast<std::size_t>(length), TokenId{token});
        }
        prompts.push_back(std::move(prompt));
      }
      const PrefixPlan plan = plan_prefixes(prompts);
      std::set<std::size_t> seen;
      std::int64_t bound = 0, tokens = 0;
      for (std::size_t i = 0; i < plan.entries.size(); ++i) {
        const std::size_t index = plan.entries[i].prompt;
        CHECK(seen.insert(index).second);
        const Prompt& prompt = prompts[index];
        std::int32_t last = 0, best = 0;
        for (const std::int32_t cut : plan.entries[i].plan.cuts) {
          CHECK(cut >= last + cut_tokens_min);
          CHECK(cut < static_cast<std::int32_t>(prompt.size()));
          last = cut;
        }
        for (std::size_t j = 0; j < i; ++j) {
          best = std::max(best, common_prefix(prompts[plan.entries[j].prompt], prompt));
        }
        bound += std::min(best, static_cast<std::int32_t>(prompt.size()) - 1);
        tokens += static_cast<std::int64_t>(prompt.size());
      }
      CHECK(seen.size() == prompts.size());
      CHECK(plan.sharable_tokens == bound);
      CHECK(plan.prompt_tokens == tokens);
      const std::int64_t got = reused(plan, prompts);
      CHECK(got <= bound);
      CHECK(got + cut_tokens_min * static_cast<std::int64_t>(prompts.size()) >= bound);
    }
  }

  TEST_CASE("every cut is used again") {
    std::mt19937 random(6);
    std::vector<Prompt> prompts;
    for (int i = 0; i < 200; ++i) {
      Prompt prompt = runs({{static_cast<int>(random() % 3), 20}});
      for (int level = 0; level < 3; ++level) {
        const Prompt more = runs({{static_cast<int>(random() % 3), 17}, {7, 1}});
        prompt.insert(prompt.end(), more.begin(), more.end());
      }
      prompts.push_back(std::move(prompt));
    }
    const PrefixPlan plan = plan_prefixes(prompts);
    std::size_t cuts = 0;
    for (std::size_t i = 0; i < plan.entries.size(); ++i) {
      for (const std::int32_t cut : plan.entries[i].plan.cuts) {
        ++cuts;
        REQUIRE(i + 1 < plan.entries.size());
        CHECK(common_prefix(prompts[plan.entries[i].prompt], prompts[plan.entries[i + 1].prompt]) >=
              cut);
      }
    }
    CHECK(cuts > 10);
  }
}

using namespace std::chrono_literals;
using testing::contains;

TEST_SUITE("app/batch/batch_report") {
  TEST_CASE("the reused tokens are reported with the reusable ones") {
    BatchReport report{.counts = {.done = 9,
                                  .failed = 1,
                                  .tokens = 30,
                                  .prompt_tokens = 200,
                                  .reused_tokens = 150},
                       .lines = 12,
                       .failed = 2,
                       .time = 2s,
                       .is_planned = true,
                       .planned_tokens = 200,
                       .sharable_tokens = 160};
    CHECK(summary_text(report, true) ==
          "12 lines, 8 answered now in 2 s, 15.0 tokens/s, 2 failed; --retry-failed runs these "
          "lines again; reused 75.0 % of 200 prompt tokens, 80.0 % are there to be reused\n");
    report.counts.first_failure = "line-3: too long";
    CHECK(summary_text(report, false) ==
          "12 lines, 8 answered now in 2 s, 15.0 tokens/s, 2 failed (first line-3: too long); "
          "--retry-failed runs these lines again\n");
    report.failed = 0;
    CHECK(summary_text(report, false) ==
          "12 lines, 8 answered now in 2 s, 15.0 tokens/s, 0 failed\n");
    CHECK(report_json(report)["reused_tokens"] == 150);
    CHECK(report_json(report)["sharable_tokens"] == 160);
    CHECK(report_json(report)["from_int8_snapshots"] == 0);
    report.counts.packed = 3;
    CHECK(contains(summary_text(report, true), "; 3 answers from int8 snapshots\n"));
    CHECK(report_json(report)["from_int8_snapshots"] == 3);
    CHECK_FALSE(contains(summary_text(report, true), "drafts"));
    CHECK(report_json(report)["acceptance_length"].is_null());
    report.counts.speculation = {
        .verify_steps = 8, .drafted = {8, 6}, .accepted = {6, 3}, .drafting_seconds = 0.25};
    CHECK(contains(summary_text(report, true),
                   "; drafts 9 of 14 accepted (by position 75.0, 50.0 %), 2.1 tokens a step, made "
                   "in 0.25 s"));
    CHECK(report_json(report)["accepted_drafts"] == 9);
    CHECK(report_json(report)["rejected_drafts"] == 5);
    CHECK(report_json(report)["acceptance_length"] == 2.125);
    CHECK(report_json(report)["acceptance_by_position"] == Json::array({0.75, 0.5}));
    CHECK(report_json(report)["drafting_seconds"] == 0.25);
    report.counts.cut = 2;
    report.length_max = 512;
    report.tier_damage = 1;
    CHECK(
        contains(summary_text(report, true), "; 2 answers ended at the 512 tokens of the context"));
    CHECK(contains(summary_text(report, true),
                   "; the disk tier gave back 1 piece damaged: not used"));
    CHECK(report_json(report)["ended_by_context"] == 2);
    CHECK(report_json(report)["damaged_in_disk_tier"] == 1);
    report.is_planned = false;
    CHECK_FALSE(contains(summary_text(report, true), "80.0"));
    CHECK_FALSE(report_json(report).contains("sharable_tokens"));
    report.counts.prompt_tokens = 0;
    CHECK_FALSE(contains(summary_text(report, true), "reused"));
  }
}

}  // namespace batch_runner_test
