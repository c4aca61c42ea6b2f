#include <algorithm>
#include <set>
#include <utility>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
#include "tests/support/free_units.h"
#include "tests/support/prefix.h"
#include "tests/support/resumable.h"
#include "tests/support/snapshot_world.h"

namespace pool_memory_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

MemoryLayout sizes(std::int32_t pages, std::int32_t slots, std::int32_t page_tokens = 4) {
  return flat_layout({.pages = pages, .slots = slots, .page_tokens = page_tokens});
}

/// The same and rings of 3 drafts.
MemoryLayout with_rings(std::int32_t pages, std::int32_t slots, std::int32_t rings) {
  MemoryLayout layout = sizes(pages, slots);
  layout.rings = {.bytes = 1, .per_superblock = rings};
  layout.ring_tokens = 3;
  layout.superblock_bytes = std::max(layout.superblock_bytes, static_cast<std::size_t>(rings));
  layout.fixed_superblocks.back() = 1;
  ++layout.superblocks;
  return layout;
}

bool all_free(const MemoryPool& pool) {
  pool.audit({}, {});
  return pool.all_free();
}

}  // namespace

TEST_SUITE("core/memory/memory") {
  TEST_CASE("a fresh sequence reads no slot until it has run") {
    MemoryPool pool(sizes(4, 2));
    Memory memory = *pool.start();
    CHECK(memory.read_slot() == no_slot);
    CHECK(memory.write_slot() != no_slot);
    REQUIRE(memory.reserve(3));
    CHECK(memory.length() == 0);
    memory.keep(0);
    CHECK(memory.read_slot() == no_slot);
    memory.keep(3);
    CHECK(memory.length() == 3);
    CHECK(memory.read_slot() == memory.write_slot());
    CHECK(pool.take_orders().empty());
  }

  TEST_CASE("reserve takes pages only where they are needed") {
    MemoryPool pool(sizes(4, 1));
    Memory memory = *pool.start();
    CHECK(memory.reserve(0));
    CHECK(memory.tables()[0].empty());
    CHECK(memory.reserve(4));
    CHECK(memory.tables()[0].size() == 1);
    CHECK(memory.reserve(4));
    CHECK(memory.tables()[0].size() == 1);
    memory.keep(4);
    CHECK(memory.reserve(1));
    CHECK(memory.tables()[0].size() == 2);
  }

  TEST_CASE("a dry pool keeps what was taken, and release gives all back") {
    MemoryPool pool(sizes(3, 2));
    {
      Memory memory = ran(pool, 5);
      CHECK_FALSE(memory.reserve(100));
      CHECK(memory.tables()[0].size() == 3);
      CHECK(memory.length() == 5);
      CHECK(memory.reserve(7));
      CHECK(pages_free(pool) == 0);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("start is refused without a free slot") {
    MemoryPool pool(sizes(3, 1));
    const std::optional<Memory> first = pool.start();
    CHECK(first);
    CHECK_FALSE(pool.start());
    pool.audit();
  }

  TEST_CASE("a checkpoint takes the live slot and the sequence writes a fresh one") {
    MemoryPool pool(sizes(8, 3));
    Memory memory = ran(pool, 6);
    const SlotId live = memory.write_slot();
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    CHECK(checkpoint->length() == 6);
    CHECK(checkpoint->slot() == live);
    CHECK(memory.read_slot() == live);
    CHECK(memory.write_slot() != live);

    REQUIRE(memory.reserve(1));
    memory.keep(1);
    CHECK(memory.read_slot() == memory.write_slot());
    CHECK(memory.read_slot() != live);
    CHECK(slots_free(pool) == 1);
  }

  TEST_CASE("a step leaves its state at cuts, each in a slot of its own") {
    MemoryPool pool(sizes(8, 4));
    Memory memory = ran(pool, 2);
    const SlotId live = memory.write_slot();
    REQUIRE(memory.reserve(6));
    REQUIRE(memory.reserve_cut(5));
    REQUIRE(memory.reserve_cut(7));
    CHECK(memory.cuts_reserved() == 2);
    pool.audit({{&memory}}, {});
    const SlotId second = memory.piece(1).write_slot, third = memory.piece(2).write_slot;
    CHECK(memory.piece(0).begin == 2);
    CHECK(memory.piece(0).read_slot == live);
    CHECK(memory.piece(0).write_slot == live);
    CHECK(memory.piece(1).begin == 5);
    CHECK(memory.piece(1).read_slot == live);
    CHECK(memory.piece(2).begin == 7);
    CHECK(memory.piece(2).read_slot == second);
    CHECK(std::set<SlotId>{live, second, third}.size() == 3);

    memory.keep(3);
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    CHECK(checkpoint->length() == 5);
    CHECK(checkpoint->slot() == live);
    CHECK(memory.piece(0).read_slot == live);
    CHECK(memory.piece(0).write_slot == second);
    memory.keep(2);  // dropped at once
    CHECK(memory.read_slot() == second);
    CHECK(memory.write_slot() == third);
    memory.keep(1);
    CHECK(memory.length() == 8);
    CHECK(memory.read_slot() == third);
    CHECK(memory.write_slot() == third);
    pool.audit({{&memory}}, {{&*checkpoint}});
    CHECK(slots_free(pool) == 2);
  }

  TEST_CASE("a cut without a free slot is refused, and one that is dropped gives its slot back") {
    MemoryPool pool(sizes(8, 2));
    {
      Memory memory = ran(pool, 1);
      REQUIRE(memory.reserve_cut(3));
      CHECK_FALSE(memory.reserve_cut(4));
      CHECK(memory.cuts_reserved() == 1);
      memory.drop_cuts();
      CHECK(memory.cuts_reserved() == 0);
      CHECK(slots_free(pool) == 1);
      REQUIRE(memory.reserve_cut(2));  // goes with the sequence
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("a checkpoint shares all pages, and resuming copies the partial one") {
    MemoryPool pool(sizes(8, 3));
    Memory memory = ran(pool, 6);
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    CHECK(checkpoint->tables()[0] == memory.tables()[0]);
    CHECK(pool.take_orders().empty());
    const std::optional<Memory> other = pool.resume(*checkpoint);
    REQUIRE(other);
    CHECK(other->tables()[0][0] == memory.tables()[0][0]);
    CHECK(other->tables()[0][1] != memory.tables()[0][1]);
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 1);
    const UnitCopy copy = std::get<UnitCopy>(orders[0]);
    CHECK(copy.view == ViewId{0});
    CHECK(copy.from == index(memory.tables()[0][1]));
    CHECK(copy.to == index(other->tables()[0][1]));
  }

  TEST_CASE("on a page boundary nothing is copied") {
    MemoryPool pool(sizes(8, 3));
    Memory memory = ran(pool, 8);
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    const std::optional<Memory> other = pool.resume(*checkpoint);
    REQUIRE(other);
    CHECK(pool.take_orders().empty());
    CHECK(pages_free(pool) == 6);
    CHECK(other->tables()[0][1] == memory.tables()[0][1]);
  }

  TEST_CASE("a second checkpoint at the same place shares the snapshot") {
    MemoryPool pool(sizes(8, 2));
    Memory memory = ran(pool, 6);
    const std::optional<Checkpoint> first = memory.checkpoint();
    CHECK(slots_free(pool) == 0);
    const std::optional<Checkpoint> second = memory.checkpoint();
    REQUIRE(second);
    CHECK(second->slot() == first->slot());
    const Checkpoint* both[] = {&*first, &*second};
    const Memory* one[] = {&memory};
    pool.audit(one, both);
  }

  TEST_CASE("resumed sequences read one snapshot and write slots of their own") {
    MemoryPool pool(sizes(12, 4));
    std::optional<Checkpoint> checkpoint;
    {
      Memory memory = ran(pool, 7);
      checkpoint = memory.checkpoint();
    }
    CHECK(slots_free(pool) == 3);
    Memory a = *pool.resume(*checkpoint);
    Memory b = *pool.resume(*checkpoint);
    CHECK(a.length() == 7);
    CHECK(a.read_slot() == checkpoint->slot());
    CHECK(b.read_slot() == checkpoint->slot());
    CHECK(a.write_slot() != b.write_slot());
    CHECK(a.tables()[0][0] == b.tables()[0][0]);
    CHECK(a.tables()[0][1] != b.tables()[0][1]);

    // The snapshot outlives its checkpoint until the last reader has moved on.
    checkpoint.reset();
    CHECK(slots_free(pool) == 1);
    REQUIRE(a.reserve(1));
    a.keep(1);
    CHECK(slots_free(pool) == 1);
    b = Memory();
    CHECK(slots_free(pool) == 3);
    a = Memory();
    CHECK(all_free(pool));
  }

  TEST_CASE("a refused checkpoint or resume takes nothing") {
    SUBCASE("no slot") {
      MemoryPool pool(sizes(8, 1));
      Memory memory = ran(pool, 6);
      CHECK_FALSE(memory.checkpoint());
      CHECK(pages_free(pool) == 6);
      CHECK(memory.read_slot() == memory.write_slot());
      CHECK(pool.take_orders().empty());
    }
    SUBCASE("no page to resume") {
      MemoryPool pool(sizes(2, 3));
      Memory memory = ran(pool, 6);
      const std::optional<Checkpoint> checkpoint = memory.checkpoint();
      REQUIRE(checkpoint);
      CHECK_FALSE(pool.resume(*checkpoint));
      CHECK(slots_free(pool) == 1);
      const Memory* one[] = {&memory};
      const Checkpoint* saved[] = {&*checkpoint};
      pool.audit(one, saved);
    }
  }

  TEST_CASE("without attention there are no pages") {
    MemoryPool pool(sizes(0, 2, 0));
    Memory memory = *pool.start();
    CHECK(memory.reserve(1'000'000));
    memory.keep(1'000'000);
    CHECK(memory.tables().empty());
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    CHECK(pages_for(pool.layout(), 17) == 0);
    CHECK(pool.take_orders().empty());
  }

  TEST_CASE("without recurrent layers there are no slots") {
    MemoryPool pool(sizes(8, 0));
    {
      Memory memory = ran(pool, 6);
      CHECK(memory.read_slot() == no_slot);
      CHECK(memory.write_slot() == no_slot);
      const std::optional<Checkpoint> checkpoint = memory.checkpoint();
      REQUIRE(checkpoint);
      const std::optional<Memory> other = pool.resume(*checkpoint);
      REQUIRE(other);
      CHECK(other->length() == 6);
      CHECK(other->write_slot() == no_slot);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("moving hands everything over once") {
    MemoryPool pool(sizes(8, 3));
    {
      Memory memory = ran(pool, 6);
      Checkpoint checkpoint = *memory.checkpoint();
      Memory moved = std::move(memory);
      CHECK(memory.length() == 0);
      CHECK(moved.length() == 6);
      Memory other = ran(pool, 2);
      other = std::move(moved);  // gives its own slot and page back at once
      CHECK(slots_free(pool) == 1);
      Checkpoint kept;
      kept = std::move(checkpoint);
      CHECK(kept.length() == 6);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE(
      "a allocate_empty checkpoint has room for all, and shares the full pages of a common "
      "prefix") {
    MemoryPool pool(sizes(8, 3));
    {
      Memory memory = ran(pool, 11);
      const Checkpoint other = *memory.checkpoint();
      const auto free = pages_free(pool);
      const Checkpoint alone = *pool.allocate_empty(10, Precision::exact);
      CHECK(pages_free(pool) == free - 3);
      CHECK(alone.length() == 10);
      CHECK(alone.slot() != no_slot);
      CHECK(!pool.allocate_empty(4, Precision::exact));  // no slot is left
      const PageTable pages = other.tables()[0];
      memory = Memory();
      const Checkpoint sharing =
          *pool.allocate_empty(10, Precision::exact, {.from = &other, .tokens = 9});
      CHECK(pages_free(pool) == free - 4);
      for (const std::size_t page : {0U, 1U}) CHECK(sharing.tables()[0][page] == pages[page]);
      CHECK(sharing.tables()[0][2] != pages[2]);
      CHECK_THROWS_AS(pool.allocate_empty(20, Precision::exact, {.from = &other, .tokens = 12}),
                      Error);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("drafts that are kept wait in a ring until they are in the state") {
    MemoryPool pool(with_rings(6, 3, 2));
    {
      Memory memory = ran(pool, 3);
      CHECK(memory.ring() == no_ring);
      REQUIRE(memory.reserve_ring());
      const RingId ring = memory.ring();
      CHECK(ring != no_ring);
      CHECK(memory.reserve_ring());
      CHECK(memory.ring() == ring);
      REQUIRE(memory.reserve(4));
      memory.keep(3, 2);
      CHECK(memory.length() == 6);
      CHECK(memory.ring_entries() == 2);
      pool.audit();
      REQUIRE(memory.reserve(4));
      memory.keep(2, 1);  // the step has applied the entries of the one before
      CHECK(memory.ring_entries() == 1);
      REQUIRE(memory.reserve(1));
      memory.keep(1);
      CHECK(memory.ring_entries() == 0);
      CHECK(memory.ring() == ring);
      CHECK(pool.usage().rings.units == 1);
      CHECK(pool.take_orders().empty());
      CHECK_THROWS_AS(memory.keep(2, 2), Error);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("a branch has pages from the next token's on, a ring, and the step another slot") {
    MemoryPool pool(with_rings(12, 4, 3));
    {
      Memory memory = ran(pool, 6);
      REQUIRE(memory.reserve_ring());
      REQUIRE(memory.reserve(4));
      static_cast<void>(pool.take_orders());
      const SlotId read = memory.read_slot();
      REQUIRE(memory.reserve_branch(8));
      REQUIRE(memory.reserve_branch(2));
      CHECK(memory.branches() == 2);
      CHECK(memory.read_slot() == read);
      const SlotId write = memory.write_slot();
      CHECK(write != read);
      const PageTable own = memory.tables()[0];
      const PageTable longer = memory.branch(0).tables[0], shorter = memory.branch(1).tables[0];
      CHECK(own.size() == 3);
      CHECK(longer.size() == 4);
      CHECK(shorter.size() == 2);
      CHECK(longer[0] == own[0]);
      CHECK(longer[1] != own[1]);
      CHECK(shorter[1] != longer[1]);
      const std::vector<Order> orders = pool.take_orders();
      REQUIRE(orders.size() == 2);
      for (std::size_t i = 0; i < 2; ++i) {
        const auto copy = std::get<UnitCopy>(orders[i]);
        CHECK(copy.from == index(own[1]));
        CHECK(copy.to == index(i == 0 ? longer[1] : shorter[1]));
      }
      pool.audit(std::vector<const Memory*>{&memory}, {});
      const RingId ring = memory.ring(), other = memory.branch(0).ring;
      CHECK(ring != other);
      CHECK(pool.usage().rings.units == 3);
      CHECK_FALSE(memory.reserve_branch(2));  // no ring is free
      CHECK(memory.branches() == 2);
      CHECK_THROWS_AS(static_cast<void>(memory.checkpoint()), Error);

      memory.take_branch(0);
      memory.keep(4, 3);
      CHECK(memory.branches() == 0);
      CHECK(memory.ring() == other);
      CHECK(memory.ring_entries() == 3);
      CHECK(memory.read_slot() == write);
      CHECK(memory.write_slot() == write);
      CHECK(memory.tables()[0] == longer);
      CHECK(pool.usage().rings.units == 1);
      CHECK(pool.usage().pages[0].units == 4);
      CHECK(pool.usage().live_slots.units == 1);
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("branches that are dropped, or whose sequence keeps its own drafts, leave nothing") {
    MemoryPool pool(with_rings(12, 4, 3));
    {
      Memory memory = ran(pool, 4);
      REQUIRE(memory.reserve_ring());
      REQUIRE(memory.reserve(4));
      static_cast<void>(pool.take_orders());
      const SlotId slot = memory.write_slot();
      const PageTable own = memory.tables()[0];
      REQUIRE(memory.reserve_branch(3));
      CHECK(pool.take_orders().empty());  // its first page is new
      memory.drop_branches();
      CHECK(memory.write_slot() == slot);
      CHECK(memory.read_slot() == slot);
      pool.audit(std::vector<const Memory*>{&memory}, {});
      REQUIRE(memory.reserve_branch(3));
      memory.keep(3, 2);
      CHECK(memory.tables()[0] == own);
      pool.audit(std::vector<const Memory*>{&memory}, {});
      CHECK(pool.usage().pages[0].units == 2);
      REQUIRE(memory.reserve(4));
      REQUIRE(memory.reserve_branch(3));  // and with entries that wait in the ring
      pool.audit(std::vector<const Memory*>{&memory}, {});
      CHECK_FALSE(memory.reserve_branch(40));
      pool.audit(std::vector<const Memory*>{&memory}, {});
    }
    CHECK(all_free(pool));
  }

  TEST_CASE("a ring is applied by order before a checkpoint, and before it is given back") {
    MemoryPool pool(with_rings(8, 4, 3));
    const auto with_entries = [&] {
      Memory memory = ran(pool, 3);
      REQUIRE(memory.reserve_ring());
      REQUIRE(memory.reserve(3));
      memory.keep(3, 2);
      return memory;
    };
    const auto expect_applied = [&](SlotId slot, RingId ring) {
      const std::vector<Order> orders = pool.take_orders();
      REQUIRE(orders.size() == 1);
      const auto& applied = std::get<AdvanceSlot>(orders[0]);
      CHECK(applied.from == slot);
      CHECK(applied.to == slot);
      CHECK(applied.ring == ring);
      CHECK(applied.entries == 2);
    };
    Memory memory = with_entries();
    const SlotId slot = memory.read_slot();
    const std::optional<Checkpoint> checkpoint = memory.checkpoint();
    REQUIRE(checkpoint);
    CHECK(checkpoint->slot() == slot);
    CHECK(memory.ring_entries() == 0);
    expect_applied(slot, memory.ring());
    CHECK(memory.checkpoint());
    CHECK(pool.take_orders().empty());

    Memory other = with_entries();
    const RingId ring = other.ring();
    const SlotId live = other.read_slot();
    other.release_ring();
    CHECK(other.ring() == no_ring);
    expect_applied(live, ring);
    CHECK(other.reserve_ring());

    Memory last = with_entries();
    const SlotId kept = last.read_slot();
    const RingId used = last.ring();
    const std::optional<Checkpoint> end = std::move(last).final_checkpoint();
    REQUIRE(end);
    CHECK(end->slot() == kept);
    expect_applied(kept, used);
  }

  TEST_CASE("a ring is refused where none is free, and not needed without recurrent layers") {
    MemoryPool pool(with_rings(6, 3, 1));
    Memory first = ran(pool, 3), second = ran(pool, 3);
    REQUIRE(first.reserve_ring());
    CHECK_FALSE(second.reserve_ring());
    first = Memory();
    CHECK(second.reserve_ring());

    MemoryPool pages(sizes(6, 0));
    Memory memory = *pages.start();
    CHECK(memory.reserve_ring());
    REQUIRE(memory.reserve(4));
    memory.keep(3, 2);
    CHECK(memory.ring() == no_ring);
    CHECK(memory.ring_entries() == 0);
  }

  TEST_CASE("broken rules of ours are reported") {
    MemoryPool pool(sizes(4, 2));
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(4));
    CHECK_THROWS_AS(memory.keep(5), Error);
    CHECK_THROWS_AS(Memory().reserve(1), Error);
    CHECK_THROWS_AS(memory.checkpoint(), Error);
    MemoryPool other(sizes(4, 2));
    memory.keep(4);
    const Checkpoint checkpoint = *memory.checkpoint();
    CHECK_THROWS_AS(other.resume(checkpoint), Error);
    CHECK_THROWS_AS(pool.resume(checkpoint, 3), Error);
    CHECK_THROWS_AS(memory.checkpoint(Precision::int8), Error);
    CHECK_THROWS_AS(pool.audit({}, {}), Error);  // the sequence and the checkpoint are not named
  }
}

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
    const Checkpoint allocate_empty = *world.pool.allocate_empty(21, Precision::exact);
    const Checkpoint packed = *world.pool.allocate_empty(21, Precision::int8);
    CHECK(list(ran) == list(allocate_empty));
    CHECK(list(ran).size() == list(packed).size());
    CHECK(list(ran).back().first == world.layout.slot_view());
    CHECK(list(packed).back().first == world.layout.packed_view());
  }
}

namespace {

/// Keeps the first page and the last ones: what a list of kinds as ranges of positions would miss.
class Sinks final : public MemoryKind {
 public:
  std::string_view name() const override { return "sinks"; }
  bool needs(PositionRange positions, std::int32_t length) const override {
    if (positions.first < 4 && length > positions.first) return true;
    return window_.needs(positions, length);
  }

 private:
  SlidingWindow window_{6};
};

const FullAttention full;
const SlidingWindow window(9);
const ChunkedAttention chunked(10);
const Sinks sinks;

}  // namespace

TEST_SUITE("core/memory/resumable") {
  TEST_CASE("the deepest position that the pool agrees to resume at") {
    const std::vector<std::vector<const MemoryKind*>> models = {
        {&full}, {&window}, {&chunked}, {&sinks}, {&full, &window}, {&sinks, &chunked}};
    for (const auto& kinds : models) {
      MemoryPool pool(toy_layout({.kinds = kinds, .recurrent = false}));
      for (const std::int32_t length : {1, 4, 9, 10, 23, 40, 41, 80}) {
        const Checkpoint checkpoint = checkpoint_at(pool, length);
        for (std::int32_t limit = 0; limit <= length + 2; ++limit) {
          std::int32_t expected = std::min(limit, length);
          while (expected > 0 && !can_resume(pool, checkpoint, expected)) --expected;
          CAPTURE(kinds.front()->name());
          CAPTURE(length);
          CAPTURE(limit);
          REQUIRE(checkpoint.resumable_length(limit) == expected);
        }
      }
    }
  }

  TEST_CASE("recurrent layers resume at the checkpoint's own length and nowhere else") {
    MemoryPool pool(toy_layout({.kinds = {&full}}));
    const Checkpoint checkpoint = checkpoint_at(pool, 20);
    CHECK(checkpoint.resumable_length(20) == 20);
    CHECK(checkpoint.resumable_length(25) == 20);
    CHECK(checkpoint.resumable_length(19) == 0);
  }

  TEST_CASE("which kinds keep everything") {
    CHECK(keeps_everything(full));
    CHECK_FALSE(keeps_everything(window));
    CHECK_FALSE(keeps_everything(chunked));
    CHECK_FALSE(keeps_everything(sinks));
    CHECK(resumes_anywhere(toy_layout({.kinds = {&full}, .recurrent = false})));
    CHECK_FALSE(resumes_anywhere(toy_layout({.kinds = {&full, &window}, .recurrent = false})));
    CHECK_FALSE(resumes_anywhere(toy_layout({.kinds = {&full}})));
  }
}

}  // namespace pool_memory_test
