#include "core/memory/tier_fetch.h"

#include <doctest/doctest.h>

#include "core/base/log.h"
#include "core/memory/snapshot_tier.h"
#include "tests/support/shim_storage.h"
#include "tests/support/snapshot_world.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

using Tokens = std::vector<TokenId>;

/// A tier whose transfers wait until the test carries them out.
struct HeldWorld : SnapshotWorld {
  explicit HeldWorld(const WorldShape& shape = {}, ShimDisk faults = {},
                     std::size_t staging_bytes = 1 << 20)
      : SnapshotWorld(shape),
        disk(faults),
        tier("test tier", carrier, std::make_unique<ShimStorage>(disk),
             {.budget_bytes = std::uint64_t{64} << 20,
              .bytes_per_second = 1e30,
              .staging_bytes = staging_bytes,
              .worker = TransferWorker::caller}) {
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

Tokens tokens(std::int32_t count, std::int32_t salt = 0) {
  Tokens key;
  for (std::int32_t i = 0; i < count; ++i) key.push_back(TokenId{i * 7 + salt});
  return key;
}

/// The key and one token more.
Tokens longer(Tokens key) {
  key.push_back(TokenId{99});
  return key;
}

}  // namespace

TEST_SUITE("core/memory/tier_fetch") {
  TEST_CASE("what is on its way holds nothing of the pool, is asked for once and comes whole") {
    HeldWorld world;
    world.put(tokens(40));
    world.evict_all();
    world.tier.drain();
    const FetchId fetch = world.asked(longer(tokens(40)));
    CHECK(world.asked(longer(tokens(40))) == fetch);
    CHECK(world.pool.all_free());
    CHECK(!world.tier.is_ready(fetch));
    world.tier.run_transfers(1);
    CHECK(!world.tier.is_ready(fetch));
    world.tier.drain();
    CHECK(world.tier.is_ready(fetch));
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

  TEST_CASE("what nobody waits for any more is not delivered, and its buffers are free") {
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

  TEST_CASE("bytes that were damaged end a fetch, and are asked for no more") {
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
    CHECK(!world.tier.is_ready(two));
    CHECK(world.tier.deliver(two) == FetchEnd::lost);
    CHECK(!world.tier.ask(longer(tokens(20)), 0).fetch);
    CHECK(world.tier.staging_bytes() == 0);
    log::set_level(log::Level::info);
  }
}
