#include "app/chat/memory_text.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;

TEST_SUITE("app/chat/memory_text") {
  TEST_CASE("superblocks that the device has no memory for are told, where there are any") {
    MemoryPlan plan;
    plan.budget = 64U << 20;
    plan.weights = 8U << 20;
    EngineUsage usage;
    usage.pool.superblocks = 10;
    usage.pool.superblocks_free = 4;
    usage.pool.free_bytes = 8U << 20;
    const auto row = [&] {
      const std::string text = memory_text(plan, usage);
      const std::size_t at = text.find("of which the device lacks");
      return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
    };
    CHECK(row() == "");
    usage.pool.superblocks_withheld = 3;
    CHECK(contains(row(), "6.0 MiB"));
    CHECK(contains(row(), "3 superblocks"));
    CHECK(contains(memory_text(plan, usage), "4 of 10 superblocks"));
  }
}
