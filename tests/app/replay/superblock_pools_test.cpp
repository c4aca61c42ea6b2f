#include "app/replay/superblock_pools.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "tests/core/replay/traces.h"

using namespace hyb;
using namespace hyb::app;

namespace {

/// As Nemotron-3-Nano has it.
ReplayShape nano_shape() {
  ReplayShape shape = testing::small_shape();
  shape.kv_bytes_per_token = 6144;
  shape.attention_layers = 6;
  shape.recurrent_layers = 23;
  shape.state_bytes = 49'082'368;
  shape.state_bytes_int8 = 13'317'120;
  return shape;
}

}  // namespace

TEST_SUITE("app/replay/superblock_pools") {
  TEST_CASE("units are what the shape says, and little is wasted") {
    for (const SnapshotFormat format : {SnapshotFormat::exact, SnapshotFormat::int8}) {
      const ReplayShape shape = nano_shape();
      const auto pools = superblock_pools(shape, 8'000'000'000, format);
      REQUIRE(pools.layout.groups.size() == 1);
      CHECK(pools.layout.groups[0].page_bytes == 16 * 6144);
      CHECK(pools.layout.slots.bytes >= 49'082'368);
      CHECK((pools.layout.packed.per_superblock > 0) == (format == SnapshotFormat::int8));
      CHECK(pools.waste() <= 0.03);
      CHECK(pools.layout.bytes() <= 8'000'000'000);
      CHECK(pools.layout.bytes() > 7'600'000'000);
    }
  }

  TEST_CASE("a model with one kind of memory has one view in use") {
    ReplayShape attention = nano_shape();
    attention.state_bytes = attention.state_bytes_int8 = 0;
    attention.recurrent_layers = 0;
    const auto pages = superblock_pools(attention, 1'000'000'000, SnapshotFormat::int8);
    CHECK(pages.layout.slots.per_superblock == 0);
    CHECK(pages.layout.packed.per_superblock == 0);
    ReplayShape recurrent = nano_shape();
    recurrent.kv_bytes_per_token = 0;
    recurrent.attention_layers = 0;
    const auto slots = superblock_pools(recurrent, 1'000'000'000, SnapshotFormat::exact);
    CHECK(slots.layout.groups.empty());
    CHECK(slots.layout.slots.per_superblock > 0);
  }

  TEST_CASE("too few bytes are refused with the numbers") {
    CHECK_THROWS_AS(superblock_pools(nano_shape(), 10'000'000, SnapshotFormat::exact), Error);
  }
}
