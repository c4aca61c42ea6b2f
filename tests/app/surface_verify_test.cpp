#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_verify_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult verify(std::vector<std::string> arguments) {
  return run_command("verify", std::move(arguments));
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

  TEST_CASE("what int8 snapshots cost the demo on its own questions") {
    const ToolResult result =
        verify({"--snapshots", "int8", "--json", "-n", "12", "--prompts", "8", "--requests",
                std::string(HYB_TESTS_DIR) + "/demo/heldout.jsonl"});
    CHECK(result.exit_code == 0);
    const Json json = parse_json(result.out, "stdout");
    CHECK(json["ok"] == true);
    CHECK(json["checks"].back()["promise"] == "int8 snapshot, two that resume: one answer");
    REQUIRE(json["int8_snapshots"].size() == 2);
    for (const Json& cost : json["int8_snapshots"]) {
      CHECK(cost["rows"].get<int>() > 100);
      CHECK(cost["kl_mean"].get<double>() > 0);
      CHECK(cost["kl_mean"].get<double>() < 0.01);
      CHECK(cost["likeliest_differs"].get<int>() * 50 < cost["rows"].get<int>());
    }
    CHECK(contains(verify({"--snapshots", "int8", "--prompts", "2"}).out,
                   "cost    8 int8 snapshots in a row: KL mean "));
  }

  TEST_CASE("requests from a file") {
    const TemporaryFolder folder;
    const auto with = [&](const std::string& text) {
      return verify({"--requests", folder.write("in", text).string(), "-n", "2"});
    };
    CHECK(with("What is 1 plus 2?\nAnd 2 plus 3?\n").exit_code == 0);
    const ToolResult broken = with("{\"prompt\": \"a\"}\n{\"prompt\": 7}\n");
    CHECK(broken.exit_code == 2);
    CHECK(contains(broken.err, "line 2: "));
    CHECK(with("{\"prompt\": \"a\"}\n{oops\n").exit_code == 2);
    CHECK(with("\n").exit_code == 2);
    CHECK(verify({"--requests", "/nowhere/at all"}).exit_code == 3);
    CHECK(verify({std::string(HYB_TESTS_DIR) + "/golden/granite-odd", "--requests",
                  folder.write("in", "a\n").string()})
              .exit_code == 3);
  }

  TEST_CASE("usage errors, and what does not fit") {
    CHECK(verify({"demo", "-n", "50", "--length", "50"}).exit_code == 2);
    CHECK(verify({"demo", "--prompts", "1"}).exit_code == 2);
    CHECK(verify({"demo", "--snapshots", "int4"}).exit_code == 2);
    CHECK(verify({"demo", "--memory", "4MiB"}).exit_code == 4);
    CHECK(verify({"granite-4.0-h-350m"}).exit_code == 3);
  }

  TEST_CASE("Ctrl-C ends it") {
    CHECK(
        run_shell(
            "timeout --foreground --preserve-status -s INT 1 $HYB verify demo --prompts 256 -n 500 "
            "--length 1000")
            .exit_code == 130);
  }
}

}  // namespace surface_verify_test
