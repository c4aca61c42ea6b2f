#include <set>

#include <doctest/doctest.h>

#include "core/base/log.h"
#include "core/memory/tier/snapshot_tier.h"
#include "tests/support/shim_storage.h"
#include "tests/support/snapshot_world.h"

namespace snapshot_tier_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr std::uint64_t roomy = std::uint64_t{64} << 20;

/// A world whose evicted snapshots go to a tier on a shim.
struct TieredWorld : SnapshotWorld {
  explicit TieredWorld(std::uint64_t budget, const WorldShape& shape = {}, ShimDisk faults = {},
                       TransferWorker worker = TransferWorker::caller)
      : SnapshotWorld(shape),
        disk(faults),
        tier("test tier", snapshot_io, std::make_unique<ShimStorage>(disk),
             {.limits = {.budget_bytes = budget, .bytes_per_second = 1e30},
              .staging_bytes = 3000,
              .worker = worker}) {
    cache.on_evict([this](std::span<const TokenId> key, const Snapshot& snapshot) {
      tier.spill(key, snapshot);
    });
  }

  ShimDisk disk;
  SnapshotTier tier;
};

std::vector<TokenId> tokens(std::int32_t count, std::int32_t salt = 0) {
  std::vector<TokenId> key;
  for (std::int32_t i = 0; i < count; ++i) key.push_back(TokenId{i * 7 + salt});
  return key;
}

/// The key and one token more.
std::vector<TokenId> longer(std::vector<TokenId> key) {
  key.push_back(TokenId{99});
  return key;
}

/// Puts, evicts and fetches at random; whatever is in the tree must be right at any time. Returns
/// how many were fetched.
std::int64_t run_schedule(TieredWorld& world, unsigned seed, int operations,
                          bool has_thread = false) {
  BranchingKeys keys(seed);
  keys.next();
  std::int64_t fetched = 0;
  const bool can_pack = world.layout.slots.per_superblock > 0;
  const Precision precision = can_pack && seed % 2 == 1 ? Precision::int8 : Precision::exact;
  for (int i = 0; i < operations; ++i) {
    if (has_thread) {
      if (keys.number(3) == 0) world.tier.wait();
    } else {
      world.tier.run_transfers(keys.number(4));
    }
    switch (keys.number(4)) {
      case 0:
      case 1:
        world.put(keys.next(), precision);
        break;
      case 2:
        world.cache.evict();
        break;
      default: {
        const std::vector<TokenId> prompt = longer(keys.any());
        const Lookup before = world.cache.look_up(prompt);
        const std::int32_t length = world.tier.fetch(prompt, before.resumable);
        if (length == 0) break;
        ++fetched;
        REQUIRE(length > before.resumable);
        REQUIRE(world.cache.look_up(prompt).resumable >= length);
      }
    }
    if (i % 5 != 0) continue;
    REQUIRE(world.all_right());
    world.cache.audit();
    world.tier.audit();
    const auto checkpoints = world.cache.checkpoints();
    world.pool.audit({}, checkpoints);
  }
  world.tier.drain();
  return fetched;
}

}  // namespace

TEST_SUITE("core/memory/snapshot_tier") {
  TEST_CASE("what is evicted comes back byte for byte") {
    for (const int run : {0, 1, 2, 3}) {
      const Precision precision = run % 2 == 0 ? Precision::exact : Precision::int8;
      TieredWorld world(roomy, {}, {}, run < 2 ? TransferWorker::thread : TransferWorker::caller);
      for (const std::int32_t length : {1, 3, 4, 5, 37, 64}) {
        REQUIRE(world.put(tokens(length), precision));
      }
      world.evict_all();
      CHECK(world.cache.tree().size() == 0);
      CHECK(world.pool.all_free());
      CHECK(world.tier.stats().spilled == 6);
      CHECK(world.tier.fetch(tokens(64), 0) == 37);  // one token is left to run
      CHECK(world.tier.fetch(longer(tokens(64)), 37) == 64);
      CHECK(world.tier.fetch(longer(tokens(64)), 64) == 0);
      CHECK(world.tier.fetch(tokens(3, 1), 0) == 0);
      CHECK(world.all_right());
      CHECK(world.cache.tree().size() == 2);
      const auto writes = world.tier.stats().bytes_written;
      world.evict_all();  // still there: nothing is written twice
      CHECK(world.tier.stats().held == 2);
      CHECK(world.tier.stats().bytes_written == writes);
    }
  }

  TEST_CASE("random schedules with any kinds: always right, never over the budget") {
    std::int64_t fetched = 0, removed = 0;
    for (unsigned seed = 0; seed < 30; ++seed) {
      const WorldShape shape{.superblocks = static_cast<std::int32_t>(4 + seed % 3 * 20),
                             .has_pages = seed % 5 != 0,
                             .has_slots = seed % 5 < 3 || seed % 5 == 0,
                             .only_full = seed % 4 == 0};
      const std::uint64_t budget = seed % 2 == 0 ? roomy : 100000 + 40000 * (seed % 7);
      const bool has_thread = seed % 3 == 0;
      TieredWorld world(budget, shape, {},
                        has_thread ? TransferWorker::thread : TransferWorker::caller);
      fetched += run_schedule(world, seed, 150, has_thread);
      removed += world.tier.stats().removed;
      CHECK(world.disk.size <= budget);
      CHECK(world.tier.stats().bytes_used <= budget);
      world.cache.clear();
      CHECK(world.pool.all_free());
    }
    CHECK(fetched > 100);
    CHECK(removed > 100);
  }

  TEST_CASE("a page that several snapshots need is stored once") {
    TieredWorld world(roomy);
    std::set<std::pair<std::int32_t, std::vector<TokenId>>> distinct;
    BranchingKeys keys(5);
    std::uint64_t sectors = 0;
    const auto count = [&](const CheckpointUnit& unit, std::span<const TokenId> key) {
      const auto end = static_cast<std::size_t>((unit.page + 1) * world.layout.page_tokens);
      const bool is_page = static_cast<std::size_t>(index(unit.view)) < world.layout.groups.size();
      // Full pages are shared; a partly filled one and a slot belong to one snapshot.
      if (is_page && end <= key.size()) {
        const std::vector<TokenId> front(key.begin(), key.begin() + static_cast<long>(end));
        if (!distinct.insert({index(unit.view), front}).second) return;
      }
      sectors += (world.layout.unit_bytes(unit.view) + sector_bytes - 1) / sector_bytes;
    };
    for (int i = 0; i < 30; ++i) {
      const std::vector<TokenId> key = keys.next();
      if (!world.put(key)) continue;
      for (const auto& unit : units_of(world.at(key)->checkpoint, world.layout)) count(unit, key);
    }
    world.evict_all();
    world.tier.drain();
    CHECK(world.tier.stats().bytes_used == sectors * sector_bytes);
    CHECK(world.disk.size <= sectors * sector_bytes);
  }

  TEST_CASE("a disk that fails at the n-th call loses the tier and nothing else") {
    log::set_level(log::Level::error);
    std::int64_t calls = 0;
    {
      TieredWorld world(300000);
      run_schedule(world, 3, 40);
      calls = world.disk.calls;
      CHECK(world.tier.is_on());
    }
    REQUIRE(calls > 50);
    for (std::int64_t n = 0; n < calls; n += 1 + n / 20) {
      TieredWorld world(300000, {}, {.fails_at = n});
      run_schedule(world, 3, 40);
      CHECK(!world.tier.is_on());
      CHECK(world.disk.calls == n + 1);  // it is not tried again
      CHECK(world.tier.stats().bytes_used == 0);
    }
    log::set_level(log::Level::info);
  }

  TEST_CASE("bytes that come back changed are never used, and cost one snapshot") {
    for (std::int64_t n = 0;; ++n) {
      TieredWorld world(roomy, {}, {.damages_at = n});
      for (const std::int32_t length : {10, 21}) world.put(tokens(length));
      world.evict_all();
      const std::int32_t length = world.tier.fetch(longer(tokens(21)), 0);
      CHECK(world.all_right());
      CHECK(world.tier.is_on());
      if (world.tier.stats().damaged == 0) {
        CHECK(length == 21);
        CHECK(n > 5);
        break;
      }
      CHECK((length == 10 || length == 0));
      // Computed again, evicted again: whole again.
      world.put(tokens(21));
      world.evict_all();
      CHECK(world.tier.fetch(longer(tokens(21)), 0) == 21);
      CHECK(world.all_right());
    }
  }

  TEST_CASE("without recurrent layers a part of a snapshot is good for what it shares") {
    TieredWorld world(roomy, {.has_slots = false, .only_full = true});
    world.put(tokens(30));
    world.evict_all();
    std::vector<TokenId> prompt = tokens(18);
    for (int i = 0; i < 5; ++i) prompt.push_back(TokenId{1000});
    CHECK(world.tier.fetch(prompt, 0) == 16);  // whole pages of it
    CHECK(world.all_right());
    CHECK(world.cache.look_up(prompt).resumable == 16);
  }

  TEST_CASE("what is computed faster than it is read is neither kept nor fetched") {
    SnapshotWorld world;
    ShimDisk disk;
    const double seconds_per_token = 1e-4;
    SnapshotTier tier("test tier", world.snapshot_io, std::make_unique<ShimStorage>(disk),
                      {.limits = {.budget_bytes = roomy,
                                  .cost = {.linear = seconds_per_token},
                                  .bytes_per_second = 5000 / (20 * seconds_per_token)}});
    world.cache.on_evict(
        [&](std::span<const TokenId> key, const Snapshot& snapshot) { tier.spill(key, snapshot); });
    world.put(tokens(20));  // the slot alone takes as long as 20 tokens
    world.evict_all();
    CHECK(tier.stats().declined == 1);
    world.put(tokens(400));
    world.evict_all();
    CHECK(tier.stats().spilled == 1);
    CHECK(tier.fetch(longer(tokens(400)), 390) == 0);
    CHECK(tier.fetch(longer(tokens(400)), 0) == 400);
  }

  TEST_CASE("a full tier keeps what saves more per byte, and what is used") {
    TieredWorld world(20 * sector_bytes, {.has_pages = false});
    // Slots take two sectors each: ten fit.
    for (std::int32_t i = 0; i < 10; ++i) world.put(tokens(100, i * 1000 + 1));
    world.evict_all();
    CHECK(world.tier.stats().spilled == 10);
    CHECK(world.tier.fetch(longer(tokens(100, 1)), 0) == 100);
    world.put(tokens(10, 50001));  // worth less than any
    for (std::int32_t i = 0; i < 9; ++i) world.put(tokens(120, 60001 + i * 1000));
    world.evict_all();
    CHECK(world.tier.stats().declined == 1);
    CHECK(world.tier.stats().removed == 9);
    CHECK(world.tier.fetch(longer(tokens(100, 1)), 0) == 100);
    for (std::int32_t i = 1; i < 10; ++i) {
      CHECK(world.tier.fetch(longer(tokens(100, i * 1000 + 1)), 0) == 0);
    }
  }

  TEST_CASE("a snapshot that an order is still to make is not kept before") {
    for (const bool settled : {false, true}) {
      TieredWorld world(roomy);
      std::optional<Memory> memory = world.pool.start();
      REQUIRE(memory->reserve(9));
      memory->keep(9);
      Checkpoint packed = *memory->checkpoint(Precision::int8);
      if (settled) world.snapshot_io.flush_orders();
      REQUIRE(world.cache.insert(tokens(9), std::move(packed), SnapshotPlace::branch));
      world.evict_all();
      CHECK(world.tier.stats().declined == (settled ? 0 : 1));
      CHECK(world.tier.stats().spilled == (settled ? 1 : 0));
    }
  }

  TEST_CASE("the index stays below its limit") {
    SnapshotWorld world({.has_slots = false, .only_full = true});
    ShimDisk disk;
    constexpr std::size_t limit = 100000;
    SnapshotTier tier(
        "test tier", world.snapshot_io, std::make_unique<ShimStorage>(disk),
        {.limits = {.budget_bytes = roomy, .index_bytes_max = limit, .bytes_per_second = 1e30}});
    world.cache.on_evict([&](std::span<const TokenId> key, const Snapshot& snapshot) {
      tier.spill(key, snapshot);
      CHECK(tier.index_bytes() <= limit);
    });
    for (std::int32_t i = 0; i < 50; ++i) {
      world.put(tokens(64, i + 1));
      world.evict_all();
    }
    CHECK(tier.stats().removed > 10);
  }
}

namespace {

using Tokens = std::vector<TokenId>;

/// A tier whose transfers wait until the test carries them out.
struct HeldWorld : SnapshotWorld {
  explicit HeldWorld(const WorldShape& shape = {}, ShimDisk faults = {},
                     std::size_t staging_bytes = 1 << 20, bool may_wait = true)
      : SnapshotWorld(shape),
        disk(faults),
        tier("test tier", snapshot_io, std::make_unique<ShimStorage>(disk),
             {.limits = {.budget_bytes = std::uint64_t{64} << 20, .bytes_per_second = 1e30},
              .staging_bytes = staging_bytes,
              .worker = TransferWorker::caller,
              .may_wait = may_wait}) {
    cache.on_evict([this](std::span<const TokenId> key, const Snapshot& snapshot) {
      tier.spill(key, snapshot);
    });
  }

  FetchId asked(const Tokens& prompt) {
    const TierAnswer answer = tier.ask(prompt, 0);
    REQUIRE(answer.fetch.has_value());
    return *answer.fetch;
  }

  ShimDisk disk;
  SnapshotTier tier;
};

}  // namespace

TEST_SUITE("core/memory/tier_fetch") {
  TEST_CASE("a pending fetch holds nothing of the pool, is requested once and arrives complete") {
    HeldWorld world;
    world.put(tokens(40));
    world.evict_all();
    world.tier.drain();
    const FetchId fetch = world.asked(longer(tokens(40)));
    CHECK(world.asked(longer(tokens(40))) == fetch);
    CHECK(world.pool.all_free());
    CHECK(!world.tier.advance(fetch));
    world.tier.run_transfers(1);
    CHECK(!world.tier.advance(fetch));
    world.tier.drain();
    CHECK(world.tier.advance(fetch));
    CHECK(world.pool.all_free());
    CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);
    CHECK(!world.tier.is_pending(fetch));
    CHECK(world.at(tokens(40))->source == SnapshotSource::disk);
    CHECK(world.all_right());
    CHECK(world.tier.deliver(fetch) == FetchEnd::lost);  // it ends once
  }

  TEST_CASE("what was spilled comes back before it is written") {
    HeldWorld world;
    world.put(tokens(40));
    world.evict_all();
    const FetchId fetch = world.asked(longer(tokens(40)));
    CHECK(world.disk.calls == 0);
    world.put(tokens(21, 5));  // the pool's units have new bytes before the old ones are written
    CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);
    CHECK(world.all_right());
  }

  TEST_CASE("an abandoned fetch is not delivered, and its buffers are free") {
    HeldWorld world;
    world.put(tokens(40));
    world.evict_all();
    world.tier.drain();
    for (const std::size_t come : {std::size_t{0}, std::size_t{3}, std::size_t{1000}}) {
      const FetchId fetch = world.asked(longer(tokens(40)));
      world.tier.run_transfers(come);
      world.tier.drop(fetch);
      CHECK(!world.tier.is_pending(fetch));
      CHECK(world.tier.deliver(fetch) == FetchEnd::lost);
      CHECK(world.cache.tree().size() == 0);
      CHECK(world.pool.all_free());
    }
    CHECK(world.tier.stats().dropped == 3);
    CHECK(world.tier.fetch(longer(tokens(40)), 0) == 40);
    CHECK(world.all_right());
  }

  TEST_CASE("pages that it was to share may be gone, others may be there") {
    for (const bool base_goes : {true, false}) {
      HeldWorld world;
      world.put(tokens(40));
      world.evict_all();
      world.put(tokens(24));
      if (!base_goes) world.evict_all();
      const FetchId fetch = world.asked(longer(tokens(40)));
      if (base_goes) {
        world.evict_all();
      } else {
        world.put(tokens(24));
      }
      CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);
      CHECK(world.all_right());
      const auto checkpoints = world.cache.checkpoints();
      world.pool.audit({}, checkpoints);
    }
  }

  TEST_CASE("more than the buffers hold comes in pieces; a second one waits for its turn") {
    HeldWorld world({}, {}, 0);  // one and a half slots
    for (const std::int32_t salt : {0, 1}) world.put(tokens(200, salt));
    world.evict_all();
    const FetchId fetch = world.asked(longer(tokens(200)));
    const TierAnswer second = world.tier.ask(longer(tokens(200, 1)), 0);
    CHECK(second.is_full);
    CHECK(!second.fetch);
    CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);
    CHECK(world.tier.staging_bytes() <= 2 * 7500 + 5000);
    CHECK(world.tier.deliver(world.asked(longer(tokens(200, 1)))) == FetchEnd::adopted);
    CHECK(world.all_right());
  }

  TEST_CASE("the tier may lose it meanwhile: what has come is good, what has not is lost") {
    for (const bool has_come : {true, false}) {
      HeldWorld world({.has_pages = false});
      world.put(tokens(40));
      world.evict_all();
      world.tier.drain();
      const FetchId fetch = world.asked(longer(tokens(40)));
      if (has_come) world.tier.drain();
      for (std::int32_t i = 0; i < 200; ++i) world.put(tokens(60, 1000 * (i + 1)));
      world.evict_all();
      CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);  // read before it was overwritten
      CHECK(world.all_right());
    }
  }

  TEST_CASE("damaged bytes end a fetch, and are not requested again") {
    HeldWorld world({}, {.damages_at = 4});
    for (const std::int32_t length : {10, 21}) world.put(tokens(length));
    world.evict_all();
    const FetchId fetch = world.asked(longer(tokens(21)));
    CHECK(world.tier.deliver(fetch) == FetchEnd::damaged);
    CHECK(world.tier.stats().damaged == 1);
    const TierAnswer again = world.tier.ask(longer(tokens(21)), 0);
    if (again.fetch) CHECK(world.tier.deliver(*again.fetch) == FetchEnd::adopted);
    CHECK(world.at(tokens(21)) == nullptr);
    CHECK(world.all_right());
  }

  TEST_CASE("a storage that fails ends all fetches") {
    log::set_level(log::Level::error);
    HeldWorld world({}, {.fails_at = 10});
    world.put(tokens(20));
    world.put(tokens(30, 1));
    world.evict_all();
    const FetchId one = world.asked(longer(tokens(20)));
    const FetchId two = world.asked(longer(tokens(30, 1)));
    world.tier.drain();
    CHECK(!world.tier.is_on());
    CHECK(!world.tier.is_pending(one));
    CHECK(!world.tier.advance(two));
    CHECK(world.tier.deliver(two) == FetchEnd::lost);
    CHECK(!world.tier.ask(longer(tokens(20)), 0).fetch);
    CHECK(world.tier.staging_bytes() == 0);
    log::set_level(log::Level::info);
  }

  TEST_CASE("units are written beside steps: their memory is held, and used when all is there") {
    for (const std::int32_t room : {1000, 2, 1}) {
      CAPTURE(room);
      HeldWorld world;
      bool may_end = false;
      world.runner.writes.room = room;
      world.runner.writes.ends = [&] { return may_end; };
      world.put(tokens(40));
      world.evict_all();
      world.tier.drain();
      const std::int64_t written = world.runner.units_written;
      const FetchId fetch = world.asked(longer(tokens(40)));
      CHECK(!world.tier.advance(fetch));
      CHECK(world.pool.all_free());  // nothing is read yet
      world.tier.drain();
      for (int step = 0; step < 3; ++step) {
        CHECK(!world.tier.advance(fetch));
        CHECK(world.runner.writes.under_way > 0);
        CHECK(world.at(tokens(40)) == nullptr);
        REQUIRE(world.tier.arriving().size() == 1);
        world.pool.audit({}, world.tier.arriving());
      }
      CHECK(world.runner.writes.under_way <= room);
      if (room == 2) CHECK(world.tier.ask(longer(tokens(40)), 0).fetch == fetch);
      may_end = true;
      while (!world.tier.advance(fetch)) world.tier.drain();
      CHECK(world.at(tokens(40)) == nullptr);
      CHECK(world.tier.deliver(fetch) == FetchEnd::adopted);
      CHECK(world.tier.arriving().empty());
      CHECK(world.at(tokens(40))->source == SnapshotSource::disk);
      CHECK(world.runner.writes.started > 2);
      CHECK(world.runner.units_written == written + 2 * world.runner.writes.started);
      CHECK(world.all_right());
      world.evict_all();
      CHECK(world.pool.all_free());
    }
  }

  TEST_CASE("copies beside steps are dropped after a failed step, or when no request waits") {
    for (const bool has_failed : {false, true}) {
      HeldWorld world;
      world.runner.writes.room = 3;
      world.runner.writes.ends = [] { return false; };
      world.put(tokens(40));
      world.evict_all();
      world.tier.drain();
      const FetchId fetch = world.asked(longer(tokens(40)));
      world.tier.drop_arriving();
      CHECK(world.tier.is_pending(fetch));  // it holds nothing yet
      world.tier.drain();
      CHECK(!world.tier.advance(fetch));
      CHECK(world.runner.writes.under_way > 0);
      has_failed ? world.tier.drop_arriving() : world.tier.drop(fetch);
      CHECK(!world.tier.is_pending(fetch));
      CHECK(world.runner.writes.under_way == 0);
      CHECK(world.pool.all_free());
      CHECK(world.tier.stats().dropped == 1);
      CHECK(world.tier.fetch(longer(tokens(40)), 0) == 40);  // waits for the copies
      CHECK(world.all_right());
    }
  }

  TEST_CASE("damage is found before anything is written, or while the rest is read") {
    for (const std::int32_t room : {1000, 1}) {
      for (const std::int64_t at : {0, 2}) {
        HeldWorld world({}, {.damages_at = at});
        world.runner.writes.room = room;
        world.put(tokens(40));
        world.evict_all();
        const FetchId fetch = world.asked(longer(tokens(40)));
        CHECK(world.tier.deliver(fetch) == FetchEnd::damaged);
        CHECK(world.tier.stats().damaged == 1);
        CHECK(world.runner.writes.under_way == 0);
        CHECK(world.at(tokens(40)) == nullptr);
        CHECK(world.pool.all_free());
      }
    }
  }

  TEST_CASE("copies beside steps: kept while the pool's units have new bytes, at most what fits") {
    for (const std::int32_t room : {1000, 7, 1}) {
      HeldWorld world({}, {}, 1 << 20, false);
      world.runner.copies.room = room;
      world.put(tokens(40));
      world.put(tokens(25, 3));
      world.evict_all();
      CHECK(world.disk.calls == 0);
      CHECK(world.runner.copies.under_way <= room);
      world.put(tokens(60, 5));  // where the evicted ones were
      world.put(tokens(60, 7));
      world.tier.drain();
      CHECK(world.runner.copies.under_way == 0);
      const TierStats stats = world.tier.stats();
      CHECK(stats.spilled + stats.late == 2);
      CHECK((stats.late > 0) == (room < 1000));
      CHECK(world.tier.fetch(longer(tokens(40)), 0) == (room < 1000 ? 0 : 40));
      CHECK(world.all_right());
      world.tier.audit();
    }
  }

  TEST_CASE("what was half copied frees its sectors, and what others share stays good") {
    HeldWorld world({.only_full = true}, {}, 1 << 20, false);
    world.runner.copies.room = 1000;
    world.put(tokens(40));
    world.evict_all();
    world.tier.drain();
    const std::uint64_t used = world.tier.stats().bytes_used;
    world.runner.copies.room = 2;  // not enough for the pages after the shared ones
    world.put(longer(longer(tokens(64))));
    world.evict_all();
    CHECK(world.tier.stats().late == 1);
    world.tier.drain();
    CHECK(world.tier.stats().bytes_used == used);
    CHECK(world.tier.fetch(longer(tokens(40)), 0) == 40);
    CHECK(world.all_right());
    world.tier.audit();
  }

  TEST_CASE("a lost copy is a miss and no damage; computed again it is kept") {
    for (std::int32_t lost = 0; lost < 12; ++lost) {
      HeldWorld world({}, {}, 1 << 20, false);
      world.runner.copies.room = 1000;
      std::int32_t ended = 0;
      world.runner.copies.fails = [&] { return ended++ == lost; };
      world.put(tokens(20));
      world.evict_all();
      CHECK(world.tier.fetch(longer(tokens(20)), 0) == 0);
      CHECK(world.runner.copies.lost == 1);
      CHECK(world.tier.is_on());
      CHECK(world.tier.stats().damaged == 0);
      CHECK(world.tier.stats().late == 1);
      world.put(tokens(20));
      world.evict_all();
      CHECK(world.tier.fetch(longer(tokens(20)), 0) == 20);
      CHECK(world.all_right());
    }
  }
}

}  // namespace snapshot_tier_test
