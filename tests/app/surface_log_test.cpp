#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

namespace surface_log_test {

using namespace hyb;
using namespace hyb::testing;

TEST_SUITE("app/surface_log") {
  TEST_CASE("--log-level decides what stderr gets, before the command and after it") {
    const auto run = [](std::vector<std::string> arguments) {
      return run_tool({.arguments = std::move(arguments)});
    };
    const ToolResult usual = run({"run", "demo", "-p", "hi", "-n", "4"});
    CHECK(usual.err == "");
    const ToolResult before = run({"--log-level", "debug", "run", "demo", "-p", "hi", "-n", "4"});
    const ToolResult after = run({"run", "demo", "-p", "hi", "-n", "4", "--log-level", "debug"});
    for (const ToolResult& result : {before, after}) {
      CHECK(result.exit_code == 0);
      CHECK(result.out == usual.out);
      CHECK(contains(result.err, "hyb: debug: demo on cpu: weights "));
    }
    const ToolResult error = run({"run", "/nonexistent", "-p", "x", "--log-level", "error"});
    CHECK(error.exit_code == 3);
    CHECK(contains(error.err, "hyb: error: "));
    const ToolResult off = run({"run", "/nonexistent", "-p", "x", "--log-level", "off"});
    CHECK(off.exit_code == 3);
    CHECK(off.err == "");
    CHECK(run({"--log-level", "loud", "run", "demo", "-p", "x"}).exit_code == 2);
    CHECK(run({"--log-level", "debug", "bench", "demo", "-p", "0", "-n", "0", "-pg", "8,2", "-r",
               "1"})
              .exit_code == 0);
  }
}

}  // namespace surface_log_test
