#include <doctest/doctest.h>

#include <string>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

using namespace hyb::testing;

namespace {

// Their shadow memory is part of the process, and no limit of ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

}  // namespace

TEST_SUITE("app/surface_limits") {
  TEST_CASE("a batch stays within its budget, in memory and on disk" *
            doctest::skip(is_sanitized)) {
    const ToolResult result = run_tool(
        {.arguments = {std::string(HYB_TESTS_DIR) + "/../scripts/measure_limits.py", HYB_BINARY,
                       "demo", "--pool-memory", "32MB", "--beside", "24MB", "--disk-tier", "4MB",
                       "--requests", "200", "--tokens", "1000", "--option=--threads", "--option=2"},
         .program = "python3",
         .time_max = std::chrono::seconds(300)});
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    for (const char* mode : {"| remap |", "| flip |", "| flat |"}) {
      CHECK(contains(result.out, mode));
    }
  }
}
