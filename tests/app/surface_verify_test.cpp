#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult verify(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "verify");
  return run_tool({.arguments = std::move(arguments)});
}

}  // namespace

TEST_SUITE("app/surface_verify") {
  TEST_CASE("the demo keeps every promise") {
    const ToolResult result = verify({});
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    CHECK(std::count(result.out.begin(), result.out.end(), '\n') >= 7);
    CHECK(!contains(result.out, "FAILED"));
    CHECK(contains(result.out, "ok      together = alone"));
  }

  TEST_CASE("tiny models of every kind, by JSON") {
    for (const char* name : {"granite-moe-rope-untied", "granite-mamba-only",
                             "granite-attention-only", "granite-odd"}) {
      CAPTURE(name);
      const ToolResult result = verify({std::string(HYB_TESTS_DIR) + "/golden/" + name, "--json",
                                        "--seed", "7", "--prompts", "3", "--length", "90"});
      CHECK(result.exit_code == 0);
      const Json json = parse_json(result.out, "stdout");
      CHECK(json["ok"] == true);
      for (const Json& check : json["checks"]) CHECK(check["rows"].get<int>() > 0);
    }
  }

  TEST_CASE("synthetic weights, one thread, f32") {
    CHECK(
        verify({std::string(HYB_TESTS_DIR) + "/golden/granite-groups", "--random-weights", "3",
                "--prompts", "2", "-n", "2", "--length", "12", "--dtype", "f32", "--threads", "1"})
            .exit_code == 0);
  }

  TEST_CASE("usage errors, and what does not fit") {
    CHECK(verify({"demo", "-n", "50", "--length", "50"}).exit_code == 2);
    CHECK(verify({"demo", "--prompts", "1"}).exit_code == 2);
    CHECK(verify({"demo", "--memory", "4MiB"}).exit_code == 4);
    CHECK(verify({"granite-4.0-h-350m"}).exit_code == 3);
  }

  TEST_CASE("Ctrl-C ends it") {
    CHECK(run_shell("timeout --preserve-status -s INT 1 $HYB verify demo --prompts 256 -n 500 "
                    "--length 1000")
              .exit_code == 130);
  }
}
