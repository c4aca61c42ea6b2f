#include "core/memory/checkpoint_units.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/snapshot_world.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/checkpoint_units") {
  TEST_CASE("the pages are those that the kind says, a kind of the test's own among them") {
    const MemoryLayout layout = world_layout({});  // pages of four tokens
    using Pages = std::vector<std::int32_t>;
    CHECK(held_pages(layout, 0, 9) == Pages{0, 1, 2});
    CHECK(held_pages(layout, 1, 21) == Pages{3, 4, 5});  // window of 10: positions 12 to 20
    CHECK(held_pages(layout, 2, 25) == Pages{6});        // chunks of 12: position 24
    CHECK(held_pages(layout, 2, 24) == Pages{});
    CHECK(held_pages(layout, 3, 33) == Pages{0, 6, 7, 8});
  }

  TEST_CASE("checkpoints of one length have one list, whatever they are made of") {
    SnapshotWorld world;
    const auto list = [&](const Checkpoint& checkpoint) {
      std::vector<std::pair<ViewId, std::int32_t>> units;
      for (const auto& unit : units_of(checkpoint, world.layout)) {
        units.emplace_back(unit.view, unit.page);
      }
      return units;
    };
    std::optional<Memory> memory = world.pool.start();
    REQUIRE(memory->reserve(21));
    memory->keep(21);
    const Checkpoint ran = *memory->checkpoint();
    const Checkpoint vacant = *world.pool.vacant(21, Precision::exact);
    const Checkpoint packed = *world.pool.vacant(21, Precision::int8);
    CHECK(list(ran) == list(vacant));
    CHECK(list(ran).size() == list(packed).size());
    CHECK(list(ran).back().first == world.layout.slot_view());
    CHECK(list(packed).back().first == world.layout.packed_view());
  }
}
