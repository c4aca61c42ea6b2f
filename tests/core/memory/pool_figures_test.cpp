#include <doctest/doctest.h>

#include "core/memory/memory.h"
#include "tests/support/page_layout.h"

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("core/memory/pool_figures") {
  TEST_CASE("usage names who has the bytes, and they add up") {
    const FullAttention full;
    MemoryLayout layout =
        page_layout({{.kind = &full, .page_bytes = 100, .pages_per_superblock = 0}}, 4, 1050, 8);
    layout.slots = {.bytes = 400, .per_superblock = 2};
    layout.packed = {.bytes = 100, .per_superblock = 10};
    MemoryPool pool(layout);
    CHECK(pool.usage().free_bytes == 8 * 1050);
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(13));
    memory.keep(13);
    const std::optional<Checkpoint> exact = memory.checkpoint();
    REQUIRE(memory.reserve(1));
    memory.keep(1);
    const std::optional<Checkpoint> packed = memory.checkpoint(Precision::int8);
    const PoolUsage usage = pool.usage();
    CHECK(usage.total() == pool.layout().bytes());
    CHECK(usage.groups[0].kind == "full");
    CHECK(usage.groups[0].pages.units == 4);
    CHECK(usage.live_slots.units == 1);
    CHECK(usage.snapshot_slots.bytes == 400);
    CHECK(usage.packed.bytes == 100);
    CHECK(usage.superblocks_free == 5);
    CHECK(usage.idle_bytes == 6 * 100 + 9 * 100);
    CHECK(usage.remainder_bytes == 50 + 250 + 50);
  }
}
