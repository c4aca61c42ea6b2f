#include <doctest/doctest.h>

#include <sstream>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

using namespace hyb::testing;

namespace {

struct Pss {
  long largest = 0, least = 0;  ///< KiB
};

Pss pss_of_idle_chat(const std::string& mode, const std::string& seconds) {
  const ToolResult result =
      run_tool({.arguments = {HYB_TESTS_DIR "/app/pss_of_idle_chat.py", HYB_BINARY, mode, seconds},
                .program = "python3"});
  REQUIRE(result.exit_code == 0);
  Pss pss;
  std::istringstream(result.out) >> pss.largest >> pss.least;
  return pss;
}

}  // namespace

TEST_SUITE("app/surface_memory") {
  TEST_CASE("memory that nothing is in goes back to the machine") {
    // The keys and values of 12,000 tokens are 9 MiB.
    for (const std::string mode : {"remap", "flip"}) {
      CAPTURE(mode);
      const Pss pss = pss_of_idle_chat(mode, "0.3");
      CHECK(pss.largest > 16 * 1024);
      CHECK(pss.least < pss.largest - 4 * 1024);
    }
  }

  TEST_CASE("--memory-idle is refused where it can have no effect") {
    for (const std::string command : {"chat", "batch"}) {
      std::vector<std::string> arguments = {command, "--memory-idle", "1", "--memory-mode", "flat"};
      if (command == "batch") arguments.insert(arguments.end(), {"-", "-o", "/nowhere/out"});
      const ToolResult result = run_tool({.arguments = arguments});
      CHECK(result.exit_code == 2);
      CHECK(contains(result.err, "--memory-idle: --memory-mode flat gives no memory back"));
    }
    const ToolResult run = run_tool({.arguments = {"run", "--memory-idle", "1", "-p", "x"}});
    CHECK(run.exit_code == 2);
    CHECK(contains(run.err, "--memory-idle"));
  }
}
