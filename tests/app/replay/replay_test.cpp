#include <algorithm>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "app/replay/replay.h"
#include "tests/app/replay/small_shape.h"
#include "tests/support/error_text.h"
#include "tests/support/traces.h"

namespace replay_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

/// 40 groups of 12 prompts each, in no order.
std::vector<ReplayRequest> groups_of_prompts() {
  std::vector<ReplayRequest> trace;
  for (int item = 0; item < 12; ++item) {
    for (int group = 0; group < 40; ++group) {
      const int length = 60 + (group * 37 + item * 11) % 50;
      trace.push_back(
          testing::request_of({{1, 30}, {100 + group, 200}, {1000 + 40 * item + group, length}},
                              {{100000 + 40 * item + group, 20}}));
    }
  }
  std::shuffle(trace.begin(), trace.end(), std::mt19937(5));
  return trace;
}

}  // namespace

TEST_SUITE("app/replay/replay") {
  TEST_CASE("the sums are those of the requests") {
    const auto trace = random_trace(1, 200, 5);
    const ReplayShape shape = small_shape();
    const ReplayRun run =
        replay(trace, shape, {.kind = PolicyKind::sglang_plus, .budget_bytes = 3000});
    REQUIRE(run.requests.size() == trace.size());
    std::int64_t prompt = 0, reused = 0;
    double saved = 0;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      CHECK(run.requests[i].prompt_tokens == tokens_of(trace[i].prompt));
      prompt += run.requests[i].prompt_tokens;
      reused += run.requests[i].served.reused;
      saved += shape.flops.of(run.requests[i].served.reused);
    }
    CHECK(run.prompt_tokens == prompt);
    CHECK(run.reused_tokens == reused);
    CHECK(run.flops_saved == doctest::Approx(saved));
    CHECK(run.hit_rate() ==
          doctest::Approx(static_cast<double>(reused) / static_cast<double>(prompt)));
    CHECK(reused > 0);
    CHECK(run.flops_saved < run.flops_total);
  }

  TEST_CASE("the number of threads changes nothing") {
    const auto trace = random_trace(2, 300, 6);
    std::vector<PolicyOptions> options;
    for (const PolicyKind kind : {PolicyKind::marconi, PolicyKind::vllm_plus, PolicyKind::sglang,
                                  PolicyKind::none, PolicyKind::bound}) {
      for (const std::int64_t budget : {500, 2000}) {
        options.push_back({.kind = kind, .budget_bytes = budget});
      }
    }
    const auto one = replay_all(trace, small_shape(), options, 1);
    const auto many = replay_all(trace, small_shape(), options, 4);
    REQUIRE(one.size() == options.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(one[i].options.kind == options[i].kind);
      CHECK(one[i].reused_tokens == many[i].reused_tokens);
      CHECK(one[i].counters.evictions == many[i].counters.evictions);
    }
  }

  TEST_CASE("depth first: a permutation that keeps common prefixes together") {
    std::vector<ReplayRequest> trace;
    for (int item = 0; item < 5; ++item) {
      for (int group = 0; group < 4; ++group) {
        trace.push_back(
            testing::request_of({{1, 10}, {100 + group, 50}, {1000 + 10 * item + group, 5}}));
      }
    }
    const auto ordered = in_depth_first_order(trace);
    REQUIRE(ordered.size() == trace.size());
    std::set<std::int64_t> items;
    for (std::size_t i = 0; i < ordered.size(); ++i) {
      CHECK(ordered[i].prompt[1].id == 100 + static_cast<std::int64_t>(i / 5));
      items.insert(ordered[i].prompt[2].id);
    }
    CHECK(items.size() == 20);
    CHECK(ordered[0].prompt[2].id == 1000);  // branches in order of arrival

    // With room for one group only, the order is what makes the hits.
    const PolicyOptions lru = {.kind = PolicyKind::sglang_plus, .budget_bytes = 700};
    const double before = replay(trace, small_shape(), lru).hit_rate();
    const double after = replay(ordered, small_shape(), lru).hit_rate();
    CHECK(after > before + 0.2);
  }

  TEST_CASE("depth first is within four points of the bound where file order is far from it") {
    const std::vector<ReplayRequest> trace = groups_of_prompts();
    const auto ordered = in_depth_first_order(trace);
    const double bound = replay(ordered, small_shape(), {.kind = PolicyKind::bound}).hit_rate();
    for (const PolicyKind kind : {PolicyKind::gd, PolicyKind::lru}) {
      for (const Precision precision : {Precision::exact, Precision::int8}) {
        const PolicyOptions options = {.kind = kind, .snapshots = precision, .budget_bytes = 1500};
        const ReplayRun run = replay(ordered, small_shape(), options);
        CHECK(run.hit_rate() > bound - 0.04);
        CHECK(run.hit_rate() <= bound);
        CHECK(replay(trace, small_shape(), options).hit_rate() < bound - 0.25);
      }
    }
  }

  TEST_CASE(
      "an order that only looks depth first is nearly as good: groups are not given, but "
      "detected") {
    auto ordered = in_depth_first_order(groups_of_prompts());
    for (ReplayRequest& request : ordered) request.plan.reset();
    const auto rate = [&](PolicyKind kind) {
      return replay(ordered, small_shape(), {.kind = kind, .budget_bytes = 1500}).hit_rate();
    };
    CHECK(rate(PolicyKind::gd) > rate(PolicyKind::lru) - 0.01);
    CHECK(rate(PolicyKind::gd) > rate(PolicyKind::bound) - 0.08);
  }

  TEST_CASE("a request that the next prompt continues has no plan") {
    const auto ordered =
        in_depth_first_order({testing::request_of({{1, 50}}, {{2, 30}}),
                              testing::request_of({{1, 50}, {2, 30}, {3, 9}}, {{4, 30}}),
                              testing::request_of({{1, 50}, {5, 20}}, {{6, 5}})});
    CHECK_FALSE(ordered[0].plan.has_value());
    REQUIRE(ordered[1].plan.has_value());
    CHECK(ordered[1].plan->needed_later == 50);
    CHECK(ordered[1].plan->cuts == std::vector<std::int32_t>{50});
    CHECK(ordered[2].plan->cuts.empty());
  }
}

namespace {

PolicyLists lists_of(std::vector<std::string> policies) {
  return {.policies = std::move(policies),
          .snapshots = {"exact", "int8"},
          .budgets = {"2GB", "1GiB"},
          .ratios = {0.5, 2},
          .sglang_states = "both",
          .host_tier = {}};
}

}  // namespace

TEST_SUITE("app/replay/policy_list") {
  TEST_CASE("every combination of what a policy has") {
    const auto options = policy_options(lists_of({"none", "sglang", "gd"}));
    REQUIRE(options.size() == 2 * (1 + 4 + 2));
    CHECK(options[0].budget_bytes == 2'000'000'000);
    CHECK(options[7].budget_bytes == 1 << 30);
    CHECK(label_of(options[0]) == "none");
    CHECK(label_of(options[1]) == "sglang 0.5");
    CHECK(label_of(options[4]) == "sglang 2 int8");
    CHECK(options[4].prompt_end_snapshots);
    CHECK(label_of(options[6]) == "gd int8");
    CHECK(policy_options(lists_of({"all"})).size() == 2 * (2 + 7 * 2 + 2));
  }

  TEST_CASE("--host-tier adds a run with it for the policies of hyb") {
    PolicyLists lists = lists_of({"vllm", "lru", "gd"});
    const std::size_t without = policy_options(lists).size();
    lists.host_tier = "64GB";
    const auto options = policy_options(lists);
    CHECK(options.size() == without + 2 * 2 * 2);
    for (const PolicyOptions& one : options) {
      const bool is_tree = one.kind == PolicyKind::lru || one.kind == PolicyKind::gd;
      CHECK((one.host_bytes == 0 || (is_tree && one.host_bytes == 64'000'000'000)));
      CHECK(label_of(one).ends_with(" + host tier") == (one.host_bytes > 0));
    }
    lists.host_tier = "50%";
    CHECK(
        contains(error_text([&] { policy_options(lists); }), "--host-tier 50%: give 1MB or more"));
  }

  TEST_CASE("what is unknown is named") {
    CHECK(contains(error_text([] { policy_options(lists_of({"lfu"})); }), "--policy lfu"));
    PolicyLists lists = lists_of({"gd"});
    lists.snapshots = {"fp8"};
    CHECK(contains(error_text([&] { policy_options(lists); }), "--snapshots fp8"));
    lists = lists_of({"gd"});
    for (const char* budget : {"much", "80%", "auto", "-1GB", ""}) {
      lists.budgets = {budget};
      CHECK(contains(error_text([&] { policy_options(lists); }), "--budget"));
    }
    lists = lists_of({"sglang"});
    lists.ratios = {0};
    CHECK(contains(error_text([&] { policy_options(lists); }), "--ratio 0"));
  }
}

}  // namespace replay_test
