#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

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

  TEST_CASE("names and texts from outside reach no terminal as control characters") {
    const std::string evil =
        "a\x1b]0;title\x07\xc2\x9b"
        "31m\xe2\x80\xae"
        "b\nhyb: error: forged";
    const TemporaryFolder folder;
    const std::filesystem::path model = folder.path() / evil;
    std::filesystem::create_directory(model);
    const auto is_harmless = [](const std::string& text) {
      return text.find_first_of("\x1b\x07") == std::string::npos && !contains(text, "\xc2\x9b") &&
             !contains(text, "\xe2\x80\xae");
    };
    for (const std::string command : {"run", "inspect", "fit", "verify"}) {
      CAPTURE(command);
      const ToolResult result = run_tool({.arguments = {command, model.string()}, .input = "x"});
      CHECK(result.exit_code == 3);
      CHECK(contains(result.err, "title"));
      CHECK(is_harmless(result.err));
      CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    }
    const ToolResult option = run_tool({.arguments = {"run", "--" + evil}});
    CHECK(option.exit_code == 2);
    CHECK(is_harmless(option.err));

    // On a terminal data are harmless, too; script(1) makes one of its own output.
    std::filesystem::copy_file(HYB_TESTS_DIR "/golden/granite-dense-nope/config.json",
                               model / "config.json");
    for (const std::string arguments : {"", " --json"}) {
      const ToolResult shown =
          run_tool({.arguments = {"-qec", "\"$HYB\" inspect \"$MODEL\"" + arguments, "/dev/null"},
                    .environment = {{"HYB", HYB_BINARY}, {"MODEL", model.string()}},
                    .program = "script"});
      CHECK(contains(shown.out, "title"));
      CHECK(is_harmless(shown.out));
    }
  }

  TEST_CASE("a small limit of addresses is one message at most, whatever the pools shrink to") {
    const ToolResult small = run_shell("ulimit -v 400000; $HYB run -p Hello -n 2 --threads 1");
    if (small.exit_code != 0) return;  // a sanitizer needs more addresses than that
    // None where the machine has so little memory left that the pools fit from the start.
    CHECK(std::count(small.err.begin(), small.err.end(), '\n') <= 1);
    CHECK((small.err.empty() || contains(small.err, "the pools shrink from")));
  }
}

}  // namespace surface_log_test
