#include "core/engine/memory_demand.h"

#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "core/memory/kind.h"
#include "tests/sim/random.h"

using namespace hyb;

namespace {

const FullAttention full;
const SlidingWindow window(8);

/// Superblocks of 6 full pages, 4 window pages, 2 slots or 3 packed snapshots.
MemoryLayout elastic(std::int32_t superblocks) {
  return {.page_tokens = 4,
          .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 6},
                     {.kind = &window, .page_bytes = 15, .pages_per_superblock = 4}},
          .slots = {.bytes = 30, .per_superblock = 2},
          .packed = {.bytes = 20, .per_superblock = 3},
          .superblock_bytes = 60,
          .superblocks = superblocks,
          .fixed_superblocks = {}};
}

}  // namespace

TEST_SUITE("core/engine/memory_demand") {
  TEST_CASE("what is said to fit can be had, and what is not can not") {
    std::int32_t fitted = 0, refused = 0;
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      MemoryPool pool(random.chance(50) ? elastic(random.between(3, 12))
                                        : flat_layout({.pages = random.between(4, 40),
                                                       .slots = random.between(1, 4),
                                                       .page_tokens = 4}));
      pool.limit_compaction(0);  // it would find room that nobody can promise
      std::deque<Memory> memories;
      for (int i = 0; i < 30; ++i) {
        if (std::optional<Memory> started = pool.start(); started && random.chance(30)) {
          memories.push_back(*std::move(started));
        }
        if (memories.empty()) continue;
        Memory& memory = memories[random.below(memories.size())];
        const std::int32_t tokens = random.between(1, 30);
        const bool fits = MemoryDemand(pool).add_growth(memory, tokens).fits();
        const bool has = memory.reserve(tokens);
        CHECK(fits == has);
        ++(fits ? fitted : refused);
        if (has) memory.keep(tokens);
        if (random.chance(20)) memories.erase(memories.begin());
      }
    }
    CHECK(fitted > 1000);
    CHECK(refused > 1000);
  }

  TEST_CASE("a newcomer needs pages for what it cannot share, and a slot") {
    const auto fits = [](std::int32_t pages, std::int32_t slots, std::int32_t tokens,
                         std::int32_t resumable) {
      MemoryPool pool(flat_layout({.pages = pages, .slots = slots, .page_tokens = 4}));
      return MemoryDemand(pool).add_newcomer(tokens, resumable).fits();
    };
    CHECK(fits(5, 1, 20, 0));
    CHECK_FALSE(fits(5, 1, 21, 0));
    CHECK_FALSE(fits(5, 0, 21, 0));
    CHECK(fits(5, 1, 27, 8));
    CHECK_FALSE(fits(5, 1, 29, 11));
    MemoryPool one(flat_layout({.pages = 9, .slots = 1, .page_tokens = 4}));
    CHECK_FALSE(MemoryDemand(one).add_newcomer(4, 0).add_slots(1).fits());
  }

  TEST_CASE("what is free a little here and there is brought together for the driest view") {
    MemoryPool pool({.page_tokens = 4,
                     .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 6}},
                     .slots = {.bytes = 30, .per_superblock = 2},
                     .packed = {},
                     .superblock_bytes = 60,
                     .superblocks = 5,
                     .fixed_superblocks = {}});
    std::vector<Memory> memories;
    for (int i = 0; i < 6; ++i) memories.push_back(*pool.start());
    REQUIRE(memories[0].reserve(48));  // two superblocks of pages, three of slots
    for (const std::ptrdiff_t gone : {5, 3, 1}) memories.erase(memories.begin() + gone);
    MemoryDemand demand(pool);
    demand.add_newcomer(4, 0);
    CHECK_FALSE(demand.fits());  // three slots are free, each in another superblock, and no page
    CHECK(demand.driest() == ViewId{0});
    CHECK(pool.compact_for(demand.driest()));
    CHECK(demand.fits());
    const std::optional<Memory> newcomer = pool.start();
    REQUIRE(newcomer);
    CHECK(pool.superblocks_free() == 1);
    CHECK_FALSE(pool.compact_for(ViewId{0}));  // all slots are where they should be
    CHECK(MemoryDemand(pool).add_slots(3).driest() == pool.layout().slot_view());
    pool.audit();
  }

  TEST_CASE("window layers need a window, however long the prompt") {
    MemoryPool pool(elastic(2));  // 12 full pages and none for anybody else
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(40, 0).fits());
    MemoryPool more(elastic(4));  // 12 full pages, 4 of the window, 2 slots
    CHECK(MemoryDemand(more).add_newcomer(40, 0).fits());
  }

  TEST_CASE("beside those that run, shared pages count once and snapshots not at all") {
    MemoryPool pool(flat_layout({.pages = 10, .slots = 6, .page_tokens = 4}));
    RequestTerms terms = {.id = RequestId{1},
                          .request = {},
                          .stop = StopStrings(std::vector<std::string>{}),
                          .length_max = 100,
                          .tokenizer = nullptr,
                          .submitted = Clock::now()};
    terms.request.prompt.assign(21, TokenId{1});
    Sequence first(terms, 0), second(terms, 1);
    first.start(*pool.start());
    REQUIRE(first.memory().reserve(20));
    first.ran(20, Clock::now());
    const Checkpoint checkpoint = *first.memory().checkpoint();
    second.start(*pool.resume(checkpoint));
    std::vector<Sequence*> both = {&first, &second};
    CHECK(MemoryDemand(pool).add_newcomer(20, 0).fits_beside(both));
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(21, 0).fits_beside(both));
    first.release();
    second.release();
    CHECK(pool.pages_free() == 5);  // the checkpoint's
    CHECK_FALSE(MemoryDemand(pool).add_newcomer(40, 0).fits());
    CHECK(MemoryDemand(pool).add_newcomer(40, 0).fits_beside({}));
  }
}
