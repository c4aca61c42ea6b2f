#include "app/replay/policy_list.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

PolicyLists lists_of(std::vector<std::string> policies) {
  return {.policies = std::move(policies),
          .snapshots = {"exact", "int8"},
          .budgets = {"2GB", "1GiB"},
          .ratios = {0.5, 2},
          .sglang_states = "both"};
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
