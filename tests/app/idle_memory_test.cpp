#include "app/idle_memory.h"

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/kind.h"
#include "tests/support/byte_runner.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using namespace std::chrono_literals;

namespace {

const FullAttention full;

/// A superblock is 4 pages of 4 tokens, or 2 slots.
MemoryLayout layout_of(std::int32_t superblocks) {
  MemoryLayout layout;
  layout.page_tokens = 4;
  layout.groups = {{.kind = &full, .page_bytes = 64, .pages_per_superblock = 4}};
  layout.slots = {.bytes = 128, .per_superblock = 2};
  layout.superblock_bytes = 256;
  layout.superblocks = superblocks;
  return layout;
}

struct World {
  ByteRunner runner{layout_of(20)};
  Engine engine{runner, nullptr, {.length_max = 100}};
  IdleMemory::Clock::time_point now{};

  Memory hold(std::int32_t tokens) {
    Memory memory = *engine.pool().start();
    REQUIRE(memory.reserve(tokens));
    engine.carry_out_orders();
    return memory;
  }
};

}  // namespace

TEST_SUITE("app/idle_memory") {
  TEST_CASE("what nobody needed for so long goes back, and not what comes and goes meanwhile") {
    World world;
    IdleMemory idle(world.engine, 10.0, world.now);
    const auto look_after = [&](std::chrono::seconds time) { idle.look(world.now += time); };
    {
      const Memory large = world.hold(96);  // 6 superblocks of pages and one of slots
      look_after(1s);
    }
    CHECK(world.engine.pool().superblocks_idle() == 7);
    look_after(8s);  // the large one held them when the time began
    look_after(1s);
    CHECK(world.engine.pool().superblocks_idle() == 7);
    for (int second = 1; second < 10; ++second) {
      const Memory small = world.hold(40);  // 3 and 1, every other look
      look_after(1s);
      CHECK(world.engine.pool().superblocks_idle() == 3);
    }
    look_after(1s);
    CHECK(world.engine.pool().superblocks_idle() == 4);  // the 3 left over went
    CHECK_FALSE(world.engine.pool().has_orders());
    look_after(10s);
    CHECK(world.engine.pool().superblocks_idle() == 0);
    const Memory again = world.hold(96);
    CHECK(world.engine.pool().superblocks_idle() == 0);
  }

  TEST_CASE("without seconds nothing is given back") {
    World world;
    IdleMemory idle(world.engine, std::nullopt, world.now);
    { const Memory large = world.hold(96); }
    for (int i = 0; i < 5; ++i) idle.look(world.now += 1000s);
    CHECK(world.engine.pool().superblocks_idle() == 7);
  }

  TEST_CASE("while a person types nothing: first the work, then the time, then all that is free") {
    World world;
    { const Memory large = world.hold(96); }
    int pieces = 0;
    const auto work = give_back_when_idle(world.engine, std::chrono::duration<double>(0.05),
                                          [&] { return ++pieces < 3; });
    const auto begin = std::chrono::steady_clock::now();
    while (work()) {
    }
    CHECK(std::chrono::steady_clock::now() - begin >= 50ms);
    CHECK(pieces == 3);
    CHECK(world.engine.pool().superblocks_idle() == 0);
  }

  TEST_CASE("flat pools give nothing back, and say so") {
    PoolOptions pools;
    CHECK_NOTHROW(check_idle(5.0, pools));
    pools.mode = "flat";
    CHECK_THROWS_AS(check_idle(5.0, pools), Error);
    CHECK_NOTHROW(check_idle(std::nullopt, pools));
  }
}
