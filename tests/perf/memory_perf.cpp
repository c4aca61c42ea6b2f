#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "core/memory/pool/memory_pool.h"
#include "tests/perf/allocations.h"
#include "tests/perf/nemotron_layout.h"
#include "tests/perf/timing.h"

namespace memory_perf {

using namespace hyb;
using namespace hyb::perf;

namespace {

constexpr ViewId pages{0}, slots{1};

}  // namespace

TEST_SUITE("perf/memory") {
  TEST_CASE("a superblock that changes its owner") {
    constexpr std::int32_t count = 1000;
    Superblocks books(nemotron_layout(count));
    std::vector<std::int32_t> taken(count * 512);
    std::vector<double> samples;
    for (int round = 0; round < 20; ++round) {
      for (std::int32_t& unit : taken) unit = books.take(pages)->unit;
      for (const std::int32_t unit : taken) books.drop(pages, unit);
      std::int64_t changes = 0;
      samples.push_back(nanoseconds([&] {
                          for (int i = 0; i < count; ++i) {
                            const TakenUnit slot = *books.take(slots);
                            taken[static_cast<std::size_t>(i)] = slot.unit;
                            changes += slot.owner_changed ? 1 : 0;
                          }
                        }) /
                        count);
      CHECK(changes == count);
      for (int i = 0; i < count; ++i) books.drop(slots, taken[static_cast<std::size_t>(i)]);
    }
    report("flip: a superblock changes its owner and gives a unit", median(samples), "ns");
  }

  TEST_CASE("pages one by one") {
    constexpr std::int32_t count = 100'000;
    Superblocks books(nemotron_layout(count / 512 + 1));
    std::vector<std::int32_t> taken(count);
    const double fill = nanoseconds([&] {
      for (std::int32_t& unit : taken) unit = books.take(pages)->unit;
    });
    report("page taken, 100,000 in a row", fill / count, "ns");
    // Half of them at random places come back, then as many are taken from the holes.
    std::shuffle(taken.begin(), taken.end(), std::mt19937(1));
    const double drop = nanoseconds([&] {
      for (std::int32_t i = 0; i < count / 2; ++i) {
        books.drop(pages, taken[static_cast<std::size_t>(i)]);
      }
    });
    report("page dropped, half of 100,000 at random", drop / (count / 2), "ns");
    const double again = nanoseconds([&] {
      for (std::int32_t i = 0; i < count / 2; ++i) {
        taken[static_cast<std::size_t>(i)] = books.take(pages)->unit;
      }
    });
    report("page taken from holes, half of 100,000", again / (count / 2), "ns");
    CHECK(books.units_used(pages) == count);
  }

  TEST_CASE("a decode step's share of the pool: 256 sequences of 32k tokens") {
    constexpr std::int32_t sequences = 256, length = 32768, steps = 200;
    MemoryPool pool(nemotron_layout(256 + 256 * 4 + 16));
    std::vector<Memory> all;
    for (std::int32_t i = 0; i < sequences; ++i) {
      all.push_back(*pool.start());
      // Lengths differ, so that in every step some need a page.
      REQUIRE(all.back().reserve(length + i));
      all.back().keep(length + i);
    }
    pool.take_orders();
    // A table doubles at times: once for each sequence here, before the measurement.
    for (Memory& memory : all) {
      REQUIRE(memory.reserve(64));
      memory.keep(64);
    }
    std::vector<Order> orders;
    orders.reserve(8);
    for (int i = 0; i < 2; ++i) pool.take_orders(orders);
    const std::int64_t before = allocations();
    const double elapsed = nanoseconds([&] {
      for (std::int32_t step = 0; step < steps; ++step) {
        for (Memory& memory : all) {
          if (!memory.reserve(1)) FAIL("dry");
          memory.keep(1);
        }
        pool.take_orders(orders);
      }
    });
    const std::int64_t asked = allocations() - before;
    report("reserve and keep, per step of 256 sequences", elapsed / steps / 1000, "us");
    report("heap allocations in 200 such steps", static_cast<double>(asked), "");
    CHECK(asked == 0);
  }

  TEST_CASE("usage and the audit of all this") {
    MemoryPool pool(nemotron_layout(64 + 64 * 4));
    std::vector<Memory> all;
    for (std::int32_t i = 0; i < 64; ++i) {
      all.push_back(*pool.start());
      REQUIRE(all.back().reserve(32768));
      all.back().keep(32768);
    }
    report("usage() of 64 sequences", nanoseconds([&] { pool.usage(); }) / 1000, "us");
    report("audit() of 64 sequences of 32k tokens", nanoseconds([&] { pool.audit(); }) / 1000,
           "us");
  }
}

}  // namespace memory_perf
