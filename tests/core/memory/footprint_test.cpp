#include "core/memory/footprint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "core/memory/memory.h"
#include "tests/sim/random.h"
#include "tests/support/page_layout.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::int64_t pages_in(const PageTable& table) {
  return static_cast<std::int64_t>(table.size()) - std::count(table.begin(), table.end(), no_page);
}

/// The most pages of each group that a sequence holds on its way, and those it holds at the end.
struct Walk {
  std::vector<std::int64_t> peak, end;
};

Walk walk(MemoryPool& pool, std::int32_t length, std::int32_t chunk) {
  Memory memory = *pool.start();
  Walk found;
  found.peak.resize(memory.tables().size(), 0);
  found.end.resize(memory.tables().size(), 0);
  while (memory.length() < length) {
    const std::int32_t tokens = std::min(chunk, length - memory.length());
    REQUIRE(memory.reserve(tokens));
    for (std::size_t i = 0; i < found.peak.size(); ++i) {
      found.peak[i] = std::max(found.peak[i], pages_in(memory.tables()[i]));
    }
    memory.keep(tokens);
  }
  for (std::size_t i = 0; i < found.end.size(); ++i) found.end[i] = pages_in(memory.tables()[i]);
  return found;
}

}  // namespace

TEST_SUITE("core/memory/footprint") {
  TEST_CASE("10 full and 20 window layers hold 7 pages of all and 2 of the windows'") {
    const FullAttention full;
    const SlidingWindow window(32);
    constexpr std::size_t page = 4096;  // of one layer
    MemoryPool pool(
        page_layout({{.kind = &full, .page_bytes = 10 * page, .pages_per_superblock = 0},
                     {.kind = &window, .page_bytes = 20 * page, .pages_per_superblock = 0}},
                    16, mib, 16));
    CHECK(walk(pool, 112, 16).end == std::vector<std::int64_t>{7, 2});
    // In pages of ten layers 7 + 2 + 2, in bytes the same.
    CHECK(pool.bytes_held(112) == (7 + 2 + 2) * 10 * page);
  }

  TEST_CASE("the layers of Gemma-3-27B are held without any padding") {
    // 62 layers, every sixth full, the others with a window of 1024; 16 kv heads of 128, bf16.
    const FullAttention full;
    const SlidingWindow window(1024);
    constexpr std::size_t page = 2 * 16 * 128 * 2 * 16;
    MemoryPool pool(
        page_layout({{.kind = &full, .page_bytes = 10 * page, .pages_per_superblock = 0},
                     {.kind = &window, .page_bytes = 52 * page, .pages_per_superblock = 0}},
                    16, 65 * mib, 64));
    const std::int32_t length = 32768;
    CHECK(walk(pool, length, 512).end == std::vector<std::int64_t>{length / 16, 1024 / 16});
    CHECK(pool.bytes_held(length) == std::size_t{length / 16} * 10 * page + 64 * 52 * page);
    // Ten layers to a group would take six groups: 8 layers of padding.
    CHECK(pool.layout().groups[0].page_bytes + pool.layout().groups[1].page_bytes == 62 * page);
  }

  TEST_CASE("a long prompt through window layers needs as many pages as a window and a chunk") {
    const SlidingWindow window(1024);
    MemoryPool pool(page_layout({{.kind = &window, .page_bytes = 4096, .pages_per_superblock = 0}},
                                16, mib, 1));
    constexpr std::int32_t length = 100'000;
    CHECK(pool.can_ever_hold(length, 512));
    const Walk found = walk(pool, length, 512);
    CHECK(found.peak[0] <= (1024 + 512) / 16 + 1);
    CHECK(pool.bytes_peak(length, 512) == static_cast<std::size_t>(found.peak[0]) * 4096);
    CHECK_FALSE(pool.can_ever_hold(length, 8192));
  }

  TEST_CASE("the pages foretold are those held, for any kinds, lengths and chunks") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      const FullAttention full;
      const SlidingWindow window(random.between(1, 40));
      const ChunkedAttention chunked(random.between(1, 40));
      MemoryPool pool(page_layout({{.kind = &full, .page_bytes = 64, .pages_per_superblock = 0},
                                   {.kind = &window, .page_bytes = 64, .pages_per_superblock = 0},
                                   {.kind = &chunked, .page_bytes = 64, .pages_per_superblock = 0}},
                                  random.between(1, 8), 640, 200));
      const std::int32_t length = random.between(1, 200), chunk = random.between(1, 50);
      const Walk found = walk(pool, length, chunk);
      std::size_t held = 0, peak = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(found.end[i] == pool.pages_held(static_cast<std::int32_t>(i), length));
        held += static_cast<std::size_t>(found.end[i]) * 64;
        peak += static_cast<std::size_t>(found.peak[i]) * 64;
      }
      CHECK(pool.bytes_held(length) == held);
      const std::size_t foretold = pool.bytes_peak(length, chunk);
      CHECK(foretold >= peak);
      CHECK(foretold <= peak + (chunk < pool.page_tokens() ? 3 * 2 * 64 : 0));
      CHECK(pool.can_ever_hold(length, chunk));
      pool.audit({}, {});
    }
  }

  TEST_CASE("what can ever be held is decided by superblocks, not by bytes") {
    const FullAttention full;
    MemoryLayout layout =
        page_layout({{.kind = &full, .page_bytes = 100, .pages_per_superblock = 0}}, 4, 1000, 3);
    layout.slots = {.bytes = 400, .per_superblock = 2};
    const MemoryPool pool(layout);
    CHECK(pool.can_ever_hold(2 * 10 * 4, 8));
    CHECK_FALSE(pool.can_ever_hold(2 * 10 * 4 + 1, 8));
    layout.fixed_superblocks = {1, 2, 0};
    const MemoryPool flat(layout);
    CHECK(flat.can_ever_hold(10 * 4, 8));
    CHECK_FALSE(flat.can_ever_hold(10 * 4 + 1, 8));
    CHECK(length_max(layout, 1000, 8) == 40);
    CHECK(length_max(layout, 30, 8) == 30);
  }

  TEST_CASE("as many sequences as are foretold can be there at once, and no more") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      CAPTURE(seed);
      sim::Random random(seed);
      const FullAttention full;
      const SlidingWindow window(random.between(1, 40));
      MemoryLayout layout =
          page_layout({{.kind = &full, .page_bytes = 64, .pages_per_superblock = 0},
                       {.kind = &window, .page_bytes = 100, .pages_per_superblock = 0}},
                      random.between(1, 8), 640, random.between(3, 40));
      layout.slots = {.bytes = 200, .per_superblock = random.between(1, 3)};
      const std::int32_t length = random.between(1, 80);
      const std::int32_t foretold = sequences_at_once(layout, length, 1000);
      MemoryPool pool(layout);
      std::vector<Memory> all;
      for (;;) {
        std::optional<Memory> memory = pool.start();
        bool is_there = memory.has_value();
        while (is_there && memory->length() < length) {
          is_there = memory->reserve(1);
          if (is_there) memory->keep(1);
        }
        if (!is_there) break;
        all.push_back(*std::move(memory));
      }
      const auto found = static_cast<std::int32_t>(all.size());
      CHECK(foretold <= found);
      // A slot is left for a checkpoint; and windows may peak above what is held in the end.
      CHECK(foretold >= found - 1 - (layout.slots.per_superblock > 1 ? 1 : 0));
    }
  }
}
