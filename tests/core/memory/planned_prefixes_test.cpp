#include <doctest/doctest.h>

#include "core/memory/prefix_cache.h"
#include "tests/support/prefix_server.h"
#include "tests/support/toy_kinds.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/planned_prefixes") {
  TEST_CASE("what nothing to come needs goes first, unheard, unless it is used") {
    for (const EvictionRule rule : {EvictionRule::greedy_dual, EvictionRule::lru}) {
      PrefixServer server({.kinds = {&full}},
                          {.eviction = rule, .placement = PlacementPrior::answers_stay});
      int heard = 0;
      server.cache.on_evict([&](std::span<const TokenId>, const Snapshot&) { ++heard; });
      server.serve(key_of("group. one"), key_of("x"), {7});
      server.serve(key_of("group. two"), key_of("x"), {7});
      server.serve(key_of("others"), key_of("y"));
      server.cache.devalue(key_of("group. two"), 7);  // what is shared stays
      CHECK(server.serve(key_of("group. six"), key_of("x")) == 7);
      server.cache.devalue(key_of("group. six"), 3);
      server.cache.audit();
      REQUIRE(server.cache.evict());
      CHECK(heard == 0);
      CHECK(server.cache.look_up(key_of("group. new")).resumable == 0);

      server.serve(key_of("again. one"), key_of("x"), {7});
      server.cache.devalue(key_of("again. one"), 0);
      CHECK(server.serve(key_of("again. two"), key_of("x")) == 7);
      while (heard == 0) REQUIRE(server.cache.evict());
      CHECK(server.cache.look_up(key_of("again. six")).resumable == 7);
    }
  }

  TEST_CASE("cuts of a plan: those that win enough, and no others") {
    PrefixServer server({.kinds = {&full}});
    const Key prompt = key_of("0123456789");
    const std::vector<std::int32_t> planned = {3, 5, 8, 10};
    const std::vector<Cut> cuts =
        server.cache.cuts_at({.matched = 6, .resumable = 3}, prompt, planned);
    REQUIRE(cuts.size() == 2);
    CHECK(cuts[0].length == 5);
    CHECK(cuts[1].length == 8);
    MemoryPool pool(toy_layout({.kinds = {&full}}));
    PrefixCache sparing(pool, {.branch_tokens_min = 4});
    CHECK(sparing.cuts_at({.matched = 3, .resumable = 3}, prompt, planned).size() == 1);
    PrefixCache off(pool, {.enabled = false});
    CHECK(off.cuts_at({}, prompt, planned).empty());
  }
}
