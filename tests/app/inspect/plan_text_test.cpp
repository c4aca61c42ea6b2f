#include "app/inspect/plan_text.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/plans.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/inspect/plan_text") {
  TEST_CASE("runs of numbers") {
    CHECK(runs_text({}) == "");
    CHECK(runs_text({7}) == "7");
    CHECK(runs_text({0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
  }

  TEST_CASE("layers of a kind and size are one group") {
    const auto groups = part_groups(plan_of("granite-4.0-h-tiny"));
    REQUIRE(groups.size() == 3);
    CHECK(groups[0].kind == "ssd");
    CHECK(groups[0].layers.size() == 36);
    CHECK(groups[1].kind == "moe");
    CHECK(groups[1].layers.size() == 40);
    CHECK(groups[1].text == "64 experts, 6 active, 512 wide, gated silu, shared expert 1024 wide");
    CHECK(groups[2].kind == "attention");
    CHECK(runs_text(groups[2].layers) == "5, 15, 25, 35");
  }

  TEST_CASE("every family's parts have words") {
    for (const char* name :
         {"nemotron-3-nano-30b-a3b", "nemotron-nano-12b-v2", "qwen3-next-80b-a3b"}) {
      for (const PartGroup& group : part_groups(plan_of(name))) CHECK(!group.text.empty());
    }
  }

  TEST_CASE("layers are counted by kind") {
    CHECK(layer_counts(plan_of("qwen3-next-80b-a3b")) ==
          Json({{"total", 48}, {"delta", 36}, {"moe", 48}, {"attention", 12}}));
  }
}
