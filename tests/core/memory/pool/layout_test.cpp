#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/memory/pool/layout.h"
#include "core/memory/pool/memory_pool.h"
#include "tests/sim/random.h"
#include "tests/support/toy_layout.h"

namespace layout_test {

using namespace hyb;

namespace {

/// The first position that a token at `position` reads, straight from the definitions.
std::int32_t first_read(const MemoryKind& kind, std::int32_t position) {
  if (const auto* window = dynamic_cast<const SlidingWindow*>(&kind)) {
    return std::max(0, position + 1 - window->window());
  }
  if (const auto* chunked = dynamic_cast<const ChunkedAttention*>(&kind)) {
    return position / chunked->chunk() * chunked->chunk();
  }
  return 0;
}

}  // namespace

TEST_SUITE("core/memory/kind") {
  TEST_CASE("a range is needed while this or a later token reads one of its positions") {
    std::vector<std::unique_ptr<MemoryKind>> kinds;
    kinds.push_back(std::make_unique<FullAttention>());
    for (const std::int32_t n : {1, 2, 7, 16}) {
      kinds.push_back(std::make_unique<SlidingWindow>(n));
      kinds.push_back(std::make_unique<ChunkedAttention>(n));
    }
    for (const auto& kind : kinds) {
      CAPTURE(kind->name());
      for (std::int32_t length = 0; length < 40; ++length) {
        for (std::int32_t first = 0; first < 40; ++first) {
          for (std::int32_t last = first; last < 44; ++last) {
            bool read = false;
            for (std::int32_t token = length; token < 60; ++token) {
              for (std::int32_t at = first_read(*kind, token); at < length; ++at) {
                read = read || (at >= first && at < last);
              }
            }
            REQUIRE(kind->needs({first, last}, length) == read);
          }
        }
      }
    }
  }
}

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

void check(const SuperblockPlan& plan, std::span<const ViewRequest> views) {
  REQUIRE(plan.views.size() == views.size());
  for (std::size_t v = 0; v < views.size(); ++v) {
    const ViewPlan& view = plan.views[v];
    std::size_t used = 0, mapped = 0;
    for (std::size_t i = 0; i < views[v].plane_unit_bytes.size(); ++i) {
      const auto units = static_cast<std::size_t>(view.units_per_superblock);
      used += units * views[v].plane_unit_bytes[i];
      mapped += view.plane_bytes[i];
      CHECK(view.plane_bytes[i] % plan.handle_bytes == 0);
      const std::size_t stride =
          view.unit_stride != 0 ? view.unit_stride : views[v].plane_unit_bytes[i];
      CHECK(stride >= views[v].plane_unit_bytes[i]);
      CHECK(units * stride == view.plane_bytes[i]);
    }
    CHECK(mapped <= plan.superblock_bytes());
    if (!views[v].plane_unit_bytes.empty()) {
      CHECK(static_cast<double>(used) >= 0.97 * static_cast<double>(plan.superblock_bytes()));
    }
  }
}

}  // namespace

TEST_SUITE("core/memory/layout") {
  TEST_CASE("superblocks of published models are those of the arithmetic by hand") {
    // Layers x bytes of a page of 16 tokens, and bytes of an f32 slot.
    const auto plan = [](std::size_t layers, std::size_t page, double slot_mib) {
      const std::vector<ViewRequest> views{
          {.plane_unit_bytes = std::vector<std::size_t>(layers, page)},
          {.plane_unit_bytes = {static_cast<std::size_t>(slot_mib * static_cast<double>(mib))},
           .may_stretch = true}};
      const SuperblockPlan found = plan_superblocks(views, 2 * mib, 1024 * mib);
      check(found, views);
      return found;
    };
    const SuperblockPlan granite_tiny = plan(4, 32768, 54.69);
    CHECK(granite_tiny.handles == 28);
    CHECK(granite_tiny.views[1].units_per_superblock == 1);
    CHECK(granite_tiny.views[0].units_per_superblock == 7 * 64);
    const SuperblockPlan nemotron_3_nano = plan(6, 16384, 46.81);
    CHECK(nemotron_3_nano.handles == 24);
    CHECK(nemotron_3_nano.views[0].units_per_superblock == 8192 / 16);
    plan(6, 65536, 141.97);
    plan(12, 32768, 73.69);
  }

  TEST_CASE("any sizes: linear addresses, whole handles, at most 3 percent wasted") {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
      std::vector<ViewRequest> views(2 + random() % 3);
      for (ViewRequest& view : views) {
        view.may_stretch = random() % 2 == 0;
        const std::size_t planes = view.may_stretch ? 1 : random() % 5;
        for (std::size_t i = 0; i < planes; ++i) {
          const std::size_t bytes =
              view.may_stretch ? 64 * (1 + random() % 5000)
                               : (std::size_t{1} << (6 + random() % 5)) * (1 + random() % 3);
          view.plane_unit_bytes.push_back(bytes);
        }
      }
      check(plan_superblocks(views, 4096, 256 * mib), views);
    }
  }

  TEST_CASE("what does not fit is an error, not a wasteful superblock") {
    const std::vector<ViewRequest> views{{.plane_unit_bytes = {3 * mib}, .may_stretch = true}};
    CHECK_THROWS_AS(plan_superblocks(views, 2 * mib, 2 * mib), Error);
  }
}

using namespace hyb::testing;

namespace {

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
    CHECK(content_bytes_held(pool.layout(), 112) == (7 + 2 + 2) * 10 * page);
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
    CHECK(content_bytes_held(pool.layout(), length) ==
          std::size_t{length / 16} * 10 * page + 64 * 52 * page);
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
    CHECK(bytes_peak(pool.layout(), length, 512) == static_cast<std::size_t>(found.peak[0]) * 4096);
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
        CHECK(found.end[i] == pages_held(pool.layout(), static_cast<std::int32_t>(i), length));
        held += static_cast<std::size_t>(found.end[i]) * 64;
        peak += static_cast<std::size_t>(found.peak[i]) * 64;
      }
      CHECK(content_bytes_held(pool.layout(), length) == held);
      const std::size_t foretold = bytes_peak(pool.layout(), length, chunk);
      CHECK(foretold >= peak);
      CHECK(foretold <= peak + (chunk < pool.layout().page_tokens ? 3 * 2 * 64 : 0));
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
    layout.fixed_superblocks = {1, 2, 0, 0};
    const MemoryPool flat(layout);
    CHECK(flat.can_ever_hold(10 * 4, 8));
    CHECK_FALSE(flat.can_ever_hold(10 * 4 + 1, 8));
    CHECK(length_max(layout, 1000, 8) == 40);
    CHECK(length_max(layout, 30, 8) == 30);
  }

  TEST_CASE("a fixed share for states divides superblocks for good, at least one each") {
    const FullAttention full;
    MemoryLayout layout =
        page_layout({{.kind = &full, .page_bytes = 100, .pages_per_superblock = 0}}, 4, 1000, 10);
    layout.slots = {.bytes = 400, .per_superblock = 2};
    using Counts = std::vector<std::int32_t>;
    CHECK(with_state_share(layout, 0.3).fixed_superblocks == Counts{7, 3, 0, 0});
    CHECK(with_state_share(layout, 0.01).fixed_superblocks == Counts{9, 1, 0, 0});
    CHECK(with_state_share(layout, 0.99).fixed_superblocks == Counts{1, 9, 0, 0});
    for (const double share : {0.0, 1.0, -0.5, std::nan("")}) {
      CHECK_THROWS_WITH_AS(with_state_share(layout, share), doctest::Contains("between 0 and 1"),
                           Error);
    }
    MemoryLayout stateless = layout;
    stateless.slots = {};
    MemoryLayout two_kinds = layout;
    two_kinds.groups.push_back(two_kinds.groups.front());
    for (const MemoryLayout& other : {stateless, two_kinds, with_state_share(layout, 0.5)}) {
      CHECK_THROWS_WITH_AS(with_state_share(other, 0.5),
                           doctest::Contains("a model with states and with one kind"), Error);
    }
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

}  // namespace layout_test
