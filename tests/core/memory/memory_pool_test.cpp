#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/memory/memory.h"
#include "tests/support/prefix_keys.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

/// Superblocks of 4 pages of 4 tokens, or of 2 slots, or of 4 packed snapshots.
MemoryLayout elastic(std::int32_t superblocks) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 4;
  layout.groups = {{.kind = &full, .page_bytes = 25, .pages_per_superblock = 4}};
  layout.slots = {.bytes = 50, .per_superblock = 2};
  layout.packed = {.bytes = 25, .per_superblock = 4};
  layout.superblock_bytes = 100;
  layout.superblocks = superblocks;
  return layout;
}

constexpr ViewId pages{0}, slots{1};

/// Two sequences of one token whose slots lie in two superblocks; their pages share a third.
struct Spread {
  explicit Spread(MemoryPool& pool) {
    first = ran(pool, 1);
    const Memory a = ran(pool, 1), b = ran(pool, 1);
    second = ran(pool, 1);
  }
  Memory first, second;
};

template <typename Wanted>
std::ptrdiff_t count(const std::vector<Order>& orders) {
  return std::count_if(orders.begin(), orders.end(),
                       [](const Order& order) { return std::holds_alternative<Wanted>(order); });
}

}  // namespace

TEST_SUITE("core/memory/memory_pool") {
  TEST_CASE("memory moves between pages and slots as it is asked for") {
    MemoryPool pool(elastic(3));
    {
      const Memory large = ran(pool, 32);  // two superblocks of pages, one of slots
      CHECK(pool.pages_free() == 0);
      CHECK(pool.slots_free() == 1);
    }
    std::vector<Memory> many;
    for (int i = 0; i < 6; ++i) many.push_back(*pool.start());
    CHECK_FALSE(pool.start());
    CHECK(pool.owner_changes() == 2);
    many.clear();
    CHECK(ran(pool, 32).length() == 32);
    CHECK(pool.owner_changes() == 4);
    CHECK(pool.all_free());
  }

  TEST_CASE("a steady load changes no owners") {
    MemoryPool pool(elastic(8));
    for (int i = 0; i < 20; ++i) {
      const Memory a = ran(pool, 17);
      const Memory b = ran(pool, 9);
      if (i == 0) pool.take_orders();
    }
    CHECK(count<ChangeOwner>(pool.take_orders()) == 0);
    CHECK(pool.owner_changes() == 0);
  }

  TEST_CASE("a copy out of a page comes before the change that takes the page's bytes") {
    MemoryPool pool(elastic(3));
    std::optional<Checkpoint> checkpoint = std::move(ran(pool, 2)).conclude();
    Memory other = *pool.resume(*checkpoint);
    checkpoint.reset();  // the page copied from is free now, and its bytes are still to be read
    const PageId copy = other.tables()[0][0];
    other = Memory();
    std::vector<Memory> many;
    for (int i = 0; i < 5; ++i) many.push_back(*pool.start());
    const std::vector<Order> orders = pool.take_orders();
    std::ptrdiff_t copied = -1, changed = -1;
    for (std::size_t i = 0; i < orders.size(); ++i) {
      const auto* change = std::get_if<ChangeOwner>(&orders[i]);
      if (const auto* page = std::get_if<PageCopy>(&orders[i])) {
        CHECK(page->to == copy);
        copied = static_cast<std::ptrdiff_t>(i);
      } else if (change != nullptr && change->from == pages) {
        changed = static_cast<std::ptrdiff_t>(i);
      }
    }
    CHECK(copied >= 0);
    CHECK(changed > copied);
  }

  TEST_CASE("a dry view gets the superblock that another one uses sparsely, and nobody notices") {
    MemoryPool pool(elastic(3));
    Spread spread(pool);
    Memory& grows = spread.first;
    pool.take_orders();
    REQUIRE(grows.reserve(14));  // 3 pages, and 2 are left
    CHECK(pool.compacted_units() == 1);
    CHECK(index(grows.write_slot()) / 2 == index(spread.second.write_slot()) / 2);
    CHECK(grows.read_slot() == grows.write_slot());
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 2);
    CHECK(std::holds_alternative<SlotCopy>(orders[0]));
    CHECK(std::get<ChangeOwner>(orders[1]).from == slots);
    pool.audit();
  }

  TEST_CASE("compaction keeps to the bytes of a step") {
    MemoryPool pool(elastic(3));
    Spread spread(pool);
    pool.limit_compaction(49);
    CHECK_FALSE(spread.first.reserve(14));
    pool.limit_compaction(50);
    CHECK(spread.first.reserve(14));
  }

  TEST_CASE("an int8 checkpoint is packed by order and unpacked by order") {
    MemoryPool pool(elastic(6));
    Memory memory = ran(pool, 6);
    const SlotId live = memory.write_slot();
    const std::optional<Checkpoint> checkpoint = memory.checkpoint(Precision::int8);
    REQUIRE(checkpoint);
    CHECK(checkpoint->slot() == no_slot);
    CHECK(memory.write_slot() == live);
    CHECK(memory.read_slot() == live);
    const std::optional<Memory> other = pool.resume(*checkpoint);
    REQUIRE(other);
    CHECK(other->read_slot() == other->write_slot());
    std::vector<Order> orders = pool.take_orders();
    std::erase_if(orders,
                  [](const Order& order) { return std::holds_alternative<ChangeOwner>(order); });
    REQUIRE(orders.size() == 3);
    CHECK(std::get<PackSlot>(orders[0]).from == live);
    CHECK(std::get<PackSlot>(orders[0]).to == checkpoint->packed());
    CHECK(std::holds_alternative<PageCopy>(orders[1]));
    CHECK(std::get<UnpackSlot>(orders[2]).to == other->write_slot());
  }

  TEST_CASE("a vacant checkpoint has what the kinds need, or takes nothing") {
    static const SlidingWindow window(4);
    MemoryLayout layout = elastic(3);
    layout.groups[0].kind = &window;
    MemoryPool pool(layout);
    {
      const std::optional<Checkpoint> made = pool.vacant(40, Precision::int8);
      REQUIRE(made);
      CHECK(made->tables()[0].size() == 10);
      CHECK(std::count(made->tables()[0].begin(), made->tables()[0].end(), no_page) == 9);
      CHECK(made->packed() != no_packed);
      CHECK(made->slot() == no_slot);
    }
    const std::optional<Memory> a = pool.start(), b = pool.start(), c = pool.start(),
                                d = pool.start(), e = pool.start();
    CHECK_FALSE(pool.vacant(40, Precision::exact));
    CHECK(pool.usage().groups[0].pages.units == 0);
    pool.audit();
  }

  TEST_CASE(
      "without recurrent layers a checkpoint is good for its shorter prefixes, if the pages are "
      "there") {
    static const SlidingWindow window(5);
    MemoryLayout layout = elastic(8);
    layout.slots = layout.packed = {};
    MemoryPool full(layout);
    layout.groups[0].kind = &window;
    MemoryPool narrow(layout);
    for (MemoryPool* pool : {&full, &narrow}) {
      std::optional<Checkpoint> checkpoint;
      {
        Memory memory = ran(*pool, 0);
        for (int i = 0; i < 30; ++i) {
          REQUIRE(memory.reserve(1));
          memory.keep(1);
        }
        checkpoint = std::move(memory).conclude();
      }
      for (std::int32_t length = 0; length < 40; ++length) {
        // Of the window's pages those from position 26 - 26 % 4 on are left.
        const bool expected = length > 0 && length <= 30 && (pool == &full || length - 4 >= 24);
        CHECK(pool->can_resume(*checkpoint, length) == expected);
        if (expected) CHECK(pool->resume(*checkpoint, length)->length() == length);
      }
    }
  }

  TEST_CASE("free superblocks can be given back, and come again") {
    MemoryPool pool(elastic(4));
    { const Memory memory = ran(pool, 16); }
    pool.take_orders();
    CHECK(pool.superblocks_idle() == 2);
    CHECK(pool.give_back(1) == 1);
    CHECK(pool.superblocks_idle() == 1);
    CHECK(pool.give_back(10) == 1);
    CHECK(pool.give_back(10) == 0);
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 2);
    for (const Order& order : orders) CHECK(std::get<ChangeOwner>(order).to == no_view);
    const Memory memory = ran(pool, 16);
    for (const Order& order : pool.take_orders()) {
      CHECK(std::get<ChangeOwner>(order).from == no_view);
    }
    CHECK(pool.owner_changes() == 0);
  }

  TEST_CASE("after a failed step owners are said anew, and other orders are dropped") {
    MemoryPool pool(elastic(4));
    std::optional<Checkpoint> checkpoint = std::move(ran(pool, 6)).conclude();
    pool.take_orders();
    const std::optional<Memory> memory = pool.resume(*checkpoint);
    pool.repeat_owners();
    const std::vector<Order> orders = pool.take_orders();
    CHECK(orders.size() == 2);
    for (const Order& order : orders) {
      CHECK(std::get<ChangeOwner>(order).from == no_view);
      CHECK(std::get<ChangeOwner>(order).to != no_view);
    }
  }

  TEST_CASE("a superblock that the device has no memory for is done without, and asked for again") {
    MemoryPool pool(elastic(4));
    std::set<std::int32_t> backed;
    std::size_t most = 2;
    int asked = 0;
    pool.set_backing([&](SuperblockId superblock, bool may_create) {
      if (backed.contains(index(superblock))) return true;
      if (!may_create) return false;
      ++asked;
      if (backed.size() == most) return false;
      backed.insert(index(superblock));
      return true;
    });
    {
      Memory memory = *pool.start();
      CHECK(memory.reserve(16));
      CHECK(!memory.reserve(17));  // two superblocks: a slot's and four pages
      CHECK(memory.room() == 16);
      CHECK(asked == 3);
      CHECK(!memory.reserve(17));
      CHECK(asked == 3);
      CHECK(pool.superblocks_withheld() == 2);
      CHECK(pool.superblocks_free() == 0);
      CHECK(pool.usage().superblocks_withheld == 2);
      CHECK(pool.can_hold_now(16));
      CHECK(!pool.can_hold_now(17));
      pool.audit();
    }
    // What is backed serves any view.
    const Memory first = *pool.start(), second = *pool.start(), third = *pool.start();
    CHECK(asked == 3);
    pool.take_orders();
    pool.audit();
    for (int steps = 1; steps < 16; ++steps) {
      CHECK(pool.superblocks_withheld() == 2);
      pool.take_orders();
    }
    CHECK(pool.superblocks_withheld() == 0);
    most = 4;
    Memory fourth = *pool.start();
    CHECK(fourth.reserve(17));
    CHECK(pool.superblocks_withheld() == 0);
  }

  TEST_CASE("a pool that shrinks does without superblocks for good") {
    MemoryPool pool(elastic(4));
    { const Memory memory = ran(pool, 16); }
    pool.take_orders();
    CHECK(pool.shrink(1) == 1);
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 1);
    CHECK(std::get<ChangeOwner>(orders.front()).to == no_view);
    pool.release_withheld();
    CHECK(pool.superblocks_withheld() == 1);
    pool.audit();
    // A failed step may have lost the order.
    pool.repeat_owners();
    CHECK(pool.take_orders().size() == 1);
    CHECK(pool.shrink(10) == 3);
    CHECK(!pool.start());
    CHECK(pool.all_free());
    pool.audit();
  }
}
