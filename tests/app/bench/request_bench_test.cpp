#include <cstdlib>

#include <doctest/doctest.h>

#include "app/bench/load_driver.h"
#include "app/bench/request_bench.h"
#include "core/base/error.h"
#include "tests/app/bench/clock_runner.h"

namespace request_bench_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

namespace {

const FullAttention full;

/// 40 superblocks of 16 pages or 4 slots.
MemoryLayout elastic() {
  return {.page_tokens = 4,
          .groups = {{.kind = &full, .page_bytes = 10, .pages_per_superblock = 16}},
          .slots = {.bytes = 40, .per_superblock = 4},
          .packed = {},
          .superblock_bytes = 160,
          .superblocks = 40,
          .fixed_superblocks = {}};
}

struct Fixture {
  explicit Fixture(MemoryLayout layout) { runner.memory = std::move(layout); }
  FakeTimer timer;
  ClockRunner runner{timer};
};

}  // namespace

TEST_SUITE("app/bench/scrambled_pool") {
  TEST_CASE("pages that follow each other lie apart, and all come back in the end") {
    Fixture fixture(elastic());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    const auto leaps = [&] {
      std::optional<Memory> memory = engine.pool().start();
      REQUIRE(memory);
      REQUIRE(memory->reserve(80));
      int count = 0;
      const PageTable& pages = memory->tables()[0];
      for (std::size_t i = 1; i < pages.size(); ++i) {
        count += std::abs(index(pages[i]) - index(pages[i - 1])) != 1;
      }
      return count;
    };
    const int before = leaps();
    {
      const ScrambledPool pieces(engine, 5);
      CHECK(pieces.held() > 0);
      CHECK(leaps() > before);
    }
    CHECK(engine.pool().all_free());
  }

  TEST_CASE("requests run in it as ever") {
    Fixture fixture(elastic());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    const ScrambledPool pieces(engine, 6);
    ListSource source({{.prompt = 30, .answer = 3}, {.prompt = 50, .answer = 2}});
    LoadOptions options;
    const LoadResult result = run_load(engine, source, fixture.timer, options);
    for (const RequestRecord& record : result.records) CHECK(record.is_answered());
  }

  TEST_CASE("fixed pools can't be scattered") {
    Fixture fixture(ClockRunner::flat());
    Engine engine(fixture.runner, nullptr, {.length_max = 200});
    CHECK_THROWS_AS(ScrambledPool(engine, 1), Error);
  }
}

}  // namespace request_bench_test
