#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_gpu_check_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

const std::string script = HYB_TESTS_DIR "/../scripts/gpu_check.py";

/// A folder of programs of which `hyb bench` prints one row, with this status.
struct Programs {
  explicit Programs(const std::string& status) {
    const std::string row = R"({"graphs":"full","status":")" + status + "\"}";
    write("hyb", "#!/bin/sh\n[ \"$1\" != bench ] || echo '" + row + "'\n");
    write("hyb_tests_cuda", "#!/bin/sh\n");
    write("card_memory", "#!/bin/sh\necho '{\"what\":\"aliases\",\"copy_gb_s\":4300}'\n");
    write("card_nodes", "#!/bin/sh\necho '{\"what\":\"nodes\",\"us_per_node\":1.5}'\n");
    write("compute-sanitizer", "#!/bin/sh\necho '========= ERROR SUMMARY: 0 errors'\n");
  }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder.write(name, text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  ToolResult check(const std::vector<std::string>& sections = {}) const {
    std::vector<std::string> arguments = {script, "--build", folder.path().string(), "--out",
                                          (folder.path() / "out").string()};
    arguments.insert(arguments.end(), sections.begin(), sections.end());
    const char* const path = std::getenv("PATH");
    return run_tool(
        {.arguments = arguments,
         .environment = {{"PATH", folder.path().string() + ":" + (path == nullptr ? "" : path)}},
         .program = "python3"});
  }

  /// What the last check wrote.
  std::vector<Json> rows() const {
    std::vector<Json> all;
    std::istringstream lines(content((folder.path() / "out").string()));
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line, "line"));
    return all;
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_SUITE("app/surface_gpu_check") {
  TEST_CASE("a row that is not ok is a failure; every preset has its rows") {
    for (const char* section : {"bench", "requests"}) {
      const Programs good("ok"), bad("does not fit");
      CHECK(good.check({section}).exit_code == 0);
      const ToolResult failed = bad.check({section});
      CHECK(failed.exit_code == 1);
      int rows = 0, endings = 0;
      for (const Json& json : bad.rows()) {
        if (json["section"] != section) continue;
        rows += json.contains("row") ? 1 : 0;
        if (!json.contains("status")) continue;
        ++endings;
        CHECK(json["status"] == "failed");
        CHECK(json["text"] == "does not fit");
      }
      CHECK(rows == endings);
      CHECK(rows >= 4);
    }
  }

  TEST_CASE("a run goes from what is wrong to what decides designs to how fast it is") {
    const Programs programs("ok");
    programs.check();
    std::vector<std::string> order;
    std::map<std::string, Json> figures;
    for (const Json& row : programs.rows()) {
      const auto section = row["section"].get<std::string>();
      if (order.empty() || order.back() != section) order.push_back(section);
      if (row.contains("what")) figures.emplace(section, row);
      if (section == "sanitizer") CHECK(row["text"] == "========= ERROR SUMMARY: 0 errors");
    }
    CHECK(order == std::vector<std::string>{"machine", "conformance", "laws", "memory", "nodes",
                                            "sanitizer", "models", "bench", "peers"});
    CHECK(figures["memory"]["copy_gb_s"] == 4300);
    CHECK(figures["nodes"]["us_per_node"] == 1.5);
  }

  TEST_CASE("some sections have a file of their own; the help names them all") {
    const ToolResult names =
        run_tool({.arguments = {"-c",
                                "import sys; sys.path.insert(0, sys.argv[1]); import gpu_check\n"
                                "for s in ([], ['requests'], ['bench', 'peers']):"
                                " print(gpu_check.default_file('card', s).name)",
                                HYB_TESTS_DIR "/../scripts"},
                  .program = "python3"});
    CHECK(names.out ==
          "results-card.jsonl\nresults-card-requests.jsonl\nresults-card-bench-peers.jsonl\n");
    const std::string help = run_tool({.arguments = {script, "--help"}, .program = "python3"}).out;
    for (const char* word : {"conformance", "requests", "by name only", "results-<card>"}) {
      CHECK(contains(help, word));
    }
  }
}

}  // namespace surface_gpu_check_test
