#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/memory_pool.h"
#include "tests/sim/random.h"
#include "tests/support/free_units.h"
#include "tests/support/prefix.h"
#include "tests/support/toy_layout.h"

namespace memory_pool_test {

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
  TEST_CASE("memory moves between pages and slots on demand") {
    MemoryPool pool(elastic(3));
    {
      const Memory large = ran(pool, 32);  // two superblocks of pages, one of slots
      CHECK(pages_free(pool) == 0);
      CHECK(slots_free(pool) == 1);
    }
    std::vector<Memory> many;
    for (int i = 0; i < 6; ++i) many.push_back(*pool.start());
    CHECK_FALSE(pool.start());
    CHECK(pool.usage().owner_changes == 2);
    many.clear();
    CHECK(ran(pool, 32).length() == 32);
    CHECK(pool.usage().owner_changes == 4);
    CHECK(pool.all_free());
  }

  TEST_CASE("a checkpoint that is taken over becomes a sequence, and nothing is copied or taken") {
    MemoryPool pool(elastic(4));
    std::optional<Checkpoint> room = pool.allocate_empty(10, Precision::exact);
    REQUIRE(room);
    const std::int64_t free = pages_free(pool) + slots_free(pool);
    static_cast<void>(pool.take_orders());
    Memory memory = pool.take_over(*std::move(room));
    CHECK(memory.length() == 10);
    CHECK(memory.read_slot() == memory.write_slot());
    CHECK(pool.orders().empty());
    CHECK(pages_free(pool) + slots_free(pool) == free);
    pool.audit({{&memory}}, {});
    CHECK(memory.reserve(3));
    memory.keep(3);
    memory = Memory();
    CHECK(pool.all_free());
  }

  TEST_CASE("a checkpoint that is shared outlives the one it was shared from") {
    MemoryPool pool(elastic(4));
    for (const Precision precision : {Precision::exact, Precision::int8}) {
      std::optional<Checkpoint> first = pool.allocate_empty(10, precision);
      REQUIRE(first);
      const Checkpoint second = pool.share(*first);
      pool.audit({}, {{&*first, &second}});
      const SlotId slot = first->slot();
      const PackedId packed = first->packed();
      first.reset();
      CHECK(second.slot() == slot);
      CHECK(second.packed() == packed);
      pool.audit({}, {{&second}});
    }
    CHECK(pool.all_free());
  }

  TEST_CASE("a checkpoint is written as long as a sequence goes on in its last page") {
    MemoryPool pool(elastic(4));  // 4 tokens in a page
    std::optional<Memory> memory = pool.start();
    REQUIRE((memory && memory->reserve(12)));
    memory->keep(4);
    const std::optional<Checkpoint> full = memory->checkpoint();
    memory->keep(1);
    const std::optional<Checkpoint> partial = memory->checkpoint();
    REQUIRE((full && partial));
    CHECK_FALSE(pool.is_written(*full));
    CHECK(pool.is_written(*partial));
    std::optional<Memory> other = pool.resume(*partial);
    REQUIRE(other);
    memory->keep(2);
    CHECK(pool.is_written(*partial));
    memory->keep(1);
    CHECK_FALSE(pool.is_written(*partial));  // the other one has a copy of the page
  }

  TEST_CASE("a steady load changes no owners") {
    MemoryPool pool(elastic(8));
    for (int i = 0; i < 20; ++i) {
      const Memory a = ran(pool, 17);
      const Memory b = ran(pool, 9);
      if (i == 0) pool.take_orders();
    }
    CHECK(count<ChangeOwner>(pool.take_orders()) == 0);
    CHECK(pool.usage().owner_changes == 0);
  }

  TEST_CASE("a copy out of a page comes before the change that takes the page's bytes") {
    MemoryPool pool(elastic(3));
    std::optional<Checkpoint> checkpoint = std::move(ran(pool, 2)).final_checkpoint();
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
      if (const auto* page = std::get_if<UnitCopy>(&orders[i])) {
        CHECK(page->view == pages);
        CHECK(page->to == index(copy));
        copied = static_cast<std::ptrdiff_t>(i);
      } else if (change != nullptr && change->from == pages) {
        changed = static_cast<std::ptrdiff_t>(i);
      }
    }
    CHECK(copied >= 0);
    CHECK(changed > copied);
  }

  TEST_CASE(
      "a dry view gets the superblock that another one uses sparsely, without any effect on it") {
    MemoryPool pool(elastic(3));
    Spread spread(pool);
    Memory& grows = spread.first;
    pool.take_orders();
    REQUIRE(grows.reserve(14));  // 3 pages, and 2 are left
    CHECK(pool.usage().compacted_units == 1);
    CHECK(index(grows.write_slot()) / 2 == index(spread.second.write_slot()) / 2);
    CHECK(grows.read_slot() == grows.write_slot());
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 2);
    CHECK(std::get<UnitCopy>(orders[0]).view == slots);
    CHECK(std::get<ChangeOwner>(orders[1]).from == slots);
    pool.audit();
  }

  TEST_CASE("a ring that is moved is copied, and its sequence knows") {
    MemoryLayout layout = elastic(8);
    layout.rings = {.bytes = layout.superblock_bytes / 3, .per_superblock = 3};
    layout.ring_tokens = 3;
    MemoryPool pool(layout);
    std::vector<Memory> sequences;
    for (int i = 0; i < 4; ++i) {
      sequences.push_back(ran(pool, 1));
      REQUIRE(sequences.back().reserve_ring());
    }
    Memory& moves = sequences.back();
    REQUIRE(moves.reserve(2));
    moves.keep(2, 1);
    sequences[0] = Memory();  // two rings in one superblock, one in another
    const RingId before = moves.ring();
    pool.take_orders();
    REQUIRE(pool.compact_for(pool.layout().packed_view()));
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 1);
    const auto& copy = std::get<UnitCopy>(orders[0]);
    CHECK(copy.view == pool.layout().ring_view());
    CHECK(copy.from == index(before));
    CHECK(copy.to == index(moves.ring()));
    CHECK(moves.ring() != before);
    CHECK(moves.ring_entries() == 1);
    pool.audit();
  }

  TEST_CASE("what is pinned is not moved, and keeps its superblocks after a failed step") {
    MemoryPool pool(elastic(3));
    Spread spread(pool);
    const SlotId first = spread.first.write_slot(), second = spread.second.write_slot();
    pool.take_orders();
    pool.pin(spread.first);
    pool.pin(spread.second);
    CHECK_FALSE(pool.compact_for(pool.layout().packed_view()));
    pool.audit();
    pool.unpin(spread.second);
    pool.resync_owners();
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 1);
    CHECK(std::get<ChangeOwner>(orders[0]).superblock == SuperblockId{index(second) / 2});
    REQUIRE(pool.compact_for(pool.layout().packed_view()));
    CHECK(spread.first.write_slot() == first);
    CHECK(index(spread.second.write_slot()) / 2 == index(first) / 2);
    pool.unpin(spread.first);
    pool.audit();
  }

  TEST_CASE(
      "void after a failed step: what its orders were to fill, and what open ones made of it") {
    MemoryPool pool(elastic(8));
    std::optional<Memory> memory = pool.start();
    REQUIRE(memory->reserve(6));
    pool.take_orders();
    memory->keep(6);
    const std::optional<Checkpoint> exact = memory->checkpoint(Precision::exact);
    const std::optional<Checkpoint> packed = memory->checkpoint(Precision::int8);
    const std::vector<Order> failed = pool.take_orders();
    const std::optional<Memory> from_packed = pool.resume(*packed),
                                from_exact = pool.resume(*exact);
    const std::size_t open = pool.orders().size();

    const UnitSet units = pool.void_units(failed);
    CHECK(pool.holds(*packed, units));
    CHECK_FALSE(pool.holds(*exact, units));
    CHECK_FALSE(pool.holds(*memory, units));
    CHECK(pool.holds(*from_packed, units));
    CHECK_FALSE(pool.holds(*from_exact, units));
    pool.order_owners_again(failed);
    const auto changes = std::count_if(failed.begin(), failed.end(), [](const Order& order) {
      return std::holds_alternative<ChangeOwner>(order);
    });
    REQUIRE(changes == 1);  // packed snapshots had no superblock before
    REQUIRE(pool.orders().size() == open + 1);
    const auto& again = std::get<ChangeOwner>(pool.orders()[0]);
    CHECK(again.from == no_view);
    CHECK(again.to == pool.layout().packed_view());
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
    CHECK(std::get<UnitCopy>(orders[1]).view == pages);
    CHECK(std::get<UnpackSlot>(orders[2]).to == other->write_slot());
  }

  TEST_CASE("a allocate_empty checkpoint has what the kinds need, or takes nothing") {
    static const SlidingWindow window(4);
    MemoryLayout layout = elastic(3);
    layout.groups[0].kind = &window;
    MemoryPool pool(layout);
    {
      const std::optional<Checkpoint> made = pool.allocate_empty(40, Precision::int8);
      REQUIRE(made);
      CHECK(made->tables()[0].size() == 10);
      CHECK(std::count(made->tables()[0].begin(), made->tables()[0].end(), no_page) == 9);
      CHECK(made->packed() != no_packed);
      CHECK(made->slot() == no_slot);
    }
    const std::optional<Memory> a = pool.start(), b = pool.start(), c = pool.start(),
                                d = pool.start(), e = pool.start();
    CHECK_FALSE(pool.allocate_empty(40, Precision::exact));
    CHECK(pool.usage().pages[0].units == 0);
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
        checkpoint = std::move(memory).final_checkpoint();
      }
      for (std::int32_t length = 0; length < 40; ++length) {
        // Of the window's pages those from position 26 - 26 % 4 on are left.
        const bool expected = length > 0 && length <= 30 && (pool == &full || length - 4 >= 24);
        CHECK((length > 0 && checkpoint->resumable_length(length) == length) == expected);
        if (expected) CHECK(pool->resume(*checkpoint, length)->length() == length);
      }
    }
  }

  TEST_CASE("free superblocks can be given back, and come again") {
    MemoryPool pool(elastic(4));
    { const Memory memory = ran(pool, 16); }
    pool.take_orders();
    CHECK(pool.superblocks().idle() == 2);
    CHECK(pool.give_back(1) == 1);
    CHECK(pool.superblocks().idle() == 1);
    CHECK(pool.give_back(10) == 1);
    CHECK(pool.give_back(10) == 0);
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 2);
    for (const Order& order : orders) CHECK(std::get<ChangeOwner>(order).to == no_view);
    const Memory memory = ran(pool, 16);
    for (const Order& order : pool.take_orders()) {
      CHECK(std::get<ChangeOwner>(order).from == no_view);
    }
    CHECK(pool.usage().owner_changes == 0);
  }

  TEST_CASE("memory ordered ahead is free for all, and taken without another order") {
    MemoryPool pool(elastic(6));
    CHECK(pool.order_ahead(0) == 0);
    CHECK(pool.order_ahead(3) == 3);  // two of 2 slots, one of 4 packed snapshots
    CHECK(pool.order_ahead(3) == 0);
    CHECK(pool.superblocks().idle() == 3);
    CHECK(pool.superblocks().free() == 6);
    CHECK(pool.usage().free_bytes == 600);
    CHECK(pool.all_free());
    pool.audit();
    for (const Order& order : pool.take_orders()) {
      const auto& change = std::get<ChangeOwner>(order);
      CHECK(change.is_ahead);
      CHECK(change.from == no_view);
      CHECK(change.to != pages);
    }
    {
      const Memory a = *pool.start(), b = *pool.start(), c = *pool.start(), d = *pool.start();
      CHECK(pool.orders().empty());
      const Memory e = *pool.start();
      CHECK(pool.orders().size() == 1);
      CHECK_FALSE(std::get<ChangeOwner>(pool.orders().front()).is_ahead);
      CHECK(pool.order_ahead(3) == 2);  // of three for slots none was left
    }
    // Other views get it when there is nothing else, and give_back() releases it.
    CHECK(pool.give_back(10) == 6);
    CHECK(pool.order_ahead(12) == 6);
    CHECK(pool.order_ahead(12) == 0);
    {
      Memory memory = *pool.start();
      CHECK(memory.reserve(5 * 16));
    }
    CHECK(pool.give_back(10) == 6);
    CHECK(pool.superblocks().idle() == 0);
    CHECK(pool.usage().owner_changes == 5);
    pool.audit();
  }

  TEST_CASE("what the device has no memory for is neither ordered ahead nor taken out of use") {
    MemoryPool pool(elastic(6));
    pool.set_backing([](SuperblockId superblock, bool) { return index(superblock) == 0; });
    CHECK(pool.order_ahead(3) == 1);
    CHECK(pool.superblocks().free() == 6);
    CHECK(pool.superblocks().uncommitted() == 0);
    MemoryLayout fixed = elastic(4);
    fixed.fixed_superblocks = {2, 2, 0, 0};
    CHECK(MemoryPool(fixed).order_ahead(3) == 0);
  }

  TEST_CASE("after a failed step owners are sent again, and other orders are dropped") {
    MemoryPool pool(elastic(4));
    std::optional<Checkpoint> checkpoint = std::move(ran(pool, 6)).final_checkpoint();
    pool.take_orders();
    const std::optional<Memory> memory = pool.resume(*checkpoint);
    pool.resync_owners();
    const std::vector<Order> orders = pool.take_orders();
    CHECK(orders.size() == 2);
    for (const Order& order : orders) {
      CHECK(std::get<ChangeOwner>(order).from == no_view);
      CHECK(std::get<ChangeOwner>(order).to != no_view);
    }
  }

  TEST_CASE(
      "a superblock that the device has no memory for is avoided, and requested again later") {
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
      CHECK(pool.superblocks().uncommitted() == 2);
      CHECK(pool.superblocks().free() == 0);
      CHECK(pool.usage().superblocks_uncommitted == 2);
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
      CHECK(pool.superblocks().uncommitted() == 2);
      pool.take_orders();
    }
    CHECK(pool.superblocks().uncommitted() == 0);
    most = 4;
    Memory fourth = *pool.start();
    CHECK(fourth.reserve(17));
    CHECK(pool.superblocks().uncommitted() == 0);
  }

  TEST_CASE("a pool that shrinks does without superblocks for good") {
    MemoryPool pool(elastic(4));
    { const Memory memory = ran(pool, 16); }
    pool.take_orders();
    CHECK(pool.shrink(1) == 1);
    const std::vector<Order> orders = pool.take_orders();
    REQUIRE(orders.size() == 1);
    CHECK(std::get<ChangeOwner>(orders.front()).to == no_view);
    pool.retry_uncommitted();
    CHECK(pool.superblocks().uncommitted() == 1);
    pool.audit();
    // A failed step may have lost the order.
    pool.resync_owners();
    CHECK(pool.take_orders().size() == 1);
    CHECK(pool.shrink(10) == 3);
    CHECK(!pool.start());
    CHECK(pool.all_free());
    pool.audit();
  }
}

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// A hybrid model's superblock: slots or pages of 16 tokens.
struct Hybrid {
  std::size_t superblock_mib;
  std::int32_t slots, pages;
};

MemoryLayout layout_of(const Hybrid& model, std::size_t budget) {
  static const FullAttention full;
  MemoryLayout layout;
  layout.page_tokens = 16;
  layout.superblock_bytes = model.superblock_mib * mib;
  layout.groups = {{.kind = &full,
                    .page_bytes = layout.superblock_bytes / static_cast<std::size_t>(model.pages),
                    .pages_per_superblock = model.pages}};
  layout.slots = {.bytes = layout.superblock_bytes / static_cast<std::size_t>(model.slots),
                  .per_superblock = model.slots};
  layout.superblocks = static_cast<std::int32_t>(budget / layout.superblock_bytes);
  return layout;
}

struct Run {
  Memory memory;
  std::int32_t prompt, length;
};

/// Sequences of random lengths come as soon as there is a slot for them. In a step each that has
/// its prompt done runs one token, and the prompts share 2,048; when memory is dry the
/// youngest is sent away. Returns the largest share of the budget that lay idle while one more
/// waited.
double idle_share(MemoryPool& pool, sim::Random& random, int steps) {
  std::vector<Run> runs;
  const auto run = [&](std::size_t i, std::int32_t tokens) {
    while (i < runs.size() && !runs[i].memory.reserve(tokens)) runs.pop_back();
    if (i < runs.size()) runs[i].memory.keep(tokens);
  };
  double most = 0;
  for (int step = 0; step < steps; ++step) {
    while (std::optional<Memory> memory = pool.start()) {
      const std::int32_t prompt = random.between(100, 4000);
      runs.push_back({std::move(*memory), prompt, prompt + random.between(50, 1000)});
    }
    // One more was refused just now.
    const PoolUsage usage = pool.usage();
    const auto idle = static_cast<double>(usage.idle_bytes + usage.free_bytes);
    if (step > 100) most = std::max(most, idle / static_cast<double>(pool.layout().bytes()));
    std::int32_t left = 2048;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::int32_t missing = runs[i].prompt - runs[i].memory.length();
      if (missing <= 0) {
        run(i, 1);
      } else if (left > 0) {
        const std::int32_t tokens = std::min({missing, left, 512});
        left -= tokens;
        run(i, tokens);
      }
    }
    pool.take_orders();
    std::erase_if(runs, [](const Run& each) { return each.memory.length() == each.length; });
  }
  return most;
}

}  // namespace

TEST_SUITE("core/memory/compaction") {
  TEST_CASE("while a request waits, less than 5 percent of the budget lies idle") {
    // granite-tiny, Nemotron-3-Nano, Nano-12B-v2, Qwen3-Next.
    const Hybrid models[] = {{56, 1, 448}, {48, 1, 512}, {144, 1, 384}, {222, 3, 576}};
    for (const Hybrid& model : models) {
      CAPTURE(model.superblock_mib);
      MemoryPool pool(layout_of(model, std::size_t{40} << 30));
      sim::Random random(7);
      const double idle = idle_share(pool, random, 1500);
      MESSAGE("superblock " << model.superblock_mib << " MiB: " << 100 * idle << " % idle at most, "
                            << pool.usage().compacted_units << " units copied");
      CHECK(idle < 0.05);
    }
  }
}

TEST_SUITE("core/memory/pool_figures") {
  TEST_CASE("usage names the owner of the bytes, and they add up") {
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
    CHECK(usage.pages[0].kind == "full");
    CHECK(usage.pages[0].units == 4);
    CHECK(usage.live_slots.units == 1);
    CHECK(usage.snapshot_slots.bytes == 400);
    CHECK(usage.packed.bytes == 100);
    CHECK(usage.superblocks_free == 5);
    CHECK(usage.idle_bytes == 6 * 100 + 9 * 100);
    CHECK(usage.remainder_bytes == 50 + 250 + 50);
  }
}

namespace {

const MemoryLayout sizes = flat_layout({.pages = 6, .slots = 3, .page_tokens = 4});

std::string finding(const MemoryPool& pool, std::span<const Memory* const> memories,
                    std::span<const Checkpoint* const> checkpoints) {
  try {
    pool.audit(memories, checkpoints);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/memory/audit") {
  TEST_CASE("every holder has to be named, and none twice") {
    MemoryPool pool(sizes);
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(6));
    memory.keep(6);
    const Checkpoint checkpoint = *memory.checkpoint();
    const Memory* one[] = {&memory};
    const Memory* twice[] = {&memory, &memory};
    const Checkpoint* saved[] = {&checkpoint};
    CHECK(finding(pool, one, saved) == "");
    CHECK(finding(pool, one, {}).find("has 1 holders and counts 2") != std::string::npos);
    CHECK(finding(pool, {}, saved).find("memory: page 0 has 1 holders") != std::string::npos);
    CHECK(finding(pool, twice, saved).find("has 3 holders and counts 2") != std::string::npos);
  }

  TEST_CASE("released memory has no owner") {
    MemoryPool pool(sizes);
    Memory memory = *pool.start();
    REQUIRE(memory.reserve(6));
    memory = Memory();
    const Memory* released[] = {&memory};
    CHECK(finding(pool, released, {}) == "");
  }
}

}  // namespace memory_pool_test
