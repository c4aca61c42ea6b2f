#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/io/file.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_replay_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

std::string made_trace(const TemporaryFolder& folder, const std::string& workload,
                       const std::string& seed) {
  const std::string path = (folder.path() / (workload + seed)).string();
  const std::string script = std::string(HYB_TESTS_DIR) + "/../scripts/measure/make_trace.py";
  const ToolResult result =
      run_tool({.arguments = {script, workload, "--seed", seed, "-o", path}, .program = "python3"});
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return path;
}

Json rows_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "replay");
  arguments.push_back("--json");
  const ToolResult result = run_tool({.arguments = std::move(arguments)});
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return parse_json(result.out, "stdout");
}

/// Percent of prompt tokens that each policy reuses, by "policy snapshots"; mean of seeds 1 to 3.
std::map<std::string, double> mean_rates(const TemporaryFolder& folder, const std::string& workload,
                                         std::vector<std::string> arguments) {
  std::map<std::string, double> means;
  for (const char* seed : {"1", "2", "3"}) {
    std::vector<std::string> all = arguments;
    all.insert(all.begin(), made_trace(folder, workload, seed));
    for (const Json& row : rows_of(all)) {
      const std::string name =
          row["policy"].get<std::string>() + " " + row["snapshots"].get<std::string>();
      means[name] += 100 * row["token_hit_rate"].get<double>() / 3;
    }
  }
  return means;
}

bool is_near(double value, double expected, double by) {
  return value >= expected - by && value <= expected + by;
}

}  // namespace

TEST_SUITE("app/surface_replay") {
  TEST_CASE("a trace of one request is one request, and one row of a table says so") {
    const TemporaryFolder folder;
    const auto trace = folder.path() / "t.jsonl";
    write_atomically(trace, R"({"t":0,"session":"a","turn":0,"prompt":[[1,64]],"output":[[2,8]]})");
    const ToolResult result = run_tool({.arguments = {"replay", trace.string(), "--policy", "gd"}});
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "t.jsonl: 1 request, 64 prompt tokens, order file"));
  }

  TEST_CASE("Nemotron-3-Nano, f32 states, 2 GB: the rivals where they belong, gd above them") {
    const TemporaryFolder folder;
    const std::vector<std::string> arguments = {"--policy", "vllm,sglang,lru,gd", "--budget",
                                                "2GB",      "--snapshots",        "exact,int8"};
    auto chat = mean_rates(folder, "chat", arguments);
    CHECK(is_near(chat["vllm exact"], 49, 4));
    CHECK(is_near(chat["sglang exact"], 42, 6));
    CHECK(chat["gd exact"] >= 57);
    CHECK(chat["gd int8"] >= 78);
    auto reasoning = mean_rates(folder, "reasoning", arguments);
    CHECK(is_near(reasoning["vllm exact"], 37, 4));
    CHECK(is_near(reasoning["sglang exact"], 24, 5));
    CHECK(reasoning["gd exact"] >= 54);
    CHECK(reasoning["gd int8"] >= 73);
    for (auto* rates : {&chat, &reasoning}) {
      CHECK((*rates)["gd exact"] >= (*rates)["lru exact"] - 1);
      CHECK((*rates)["gd int8"] >= (*rates)["lru int8"] - 1);
    }
  }

  TEST_CASE("shared prefixes, the paper's model, orders") {
    const TemporaryFolder folder;
    const std::string gsp = made_trace(folder, "gsp", "1");
    CHECK(rows_of({"--budget", "6GB", "--policy", "gd", gsp})[0]["token_hit_rate"] >= 0.75);

    auto chat =
        mean_rates(folder, "chat", {"--shape", "marconi-7b", "--policy", "vllm+,sglang+,marconi"});
    CHECK(chat["sglang+ exact"] > 3 * chat["vllm+ exact"]);
    CHECK(chat["sglang+ exact"] < 6 * chat["vllm+ exact"]);
    CHECK(is_near(chat["marconi exact"], chat["sglang+ exact"], 4));

    const std::string batch = made_trace(folder, "batch", "1");
    const Json rows =
        rows_of({batch, "--policy", "lru,gd,bound", "--budget", "1GB", "--order", "depth-first"});
    const auto rate = [&](std::size_t row) { return rows[row]["token_hit_rate"].get<double>(); };
    CHECK(rate(0) >= rate(2) - 0.04);
    CHECK(rate(1) >= rate(2) - 0.04);
    const Json unordered = rows_of({batch, "--policy", "gd", "--budget", "1GB"});
    CHECK(unordered[0]["token_hit_rate"] < rate(1));
  }

  TEST_CASE("a row has every figure, and the table and the plot show them") {
    const TemporaryFolder folder;
    const std::string trace = made_trace(folder, "fewshot", "1");
    const Json rows = rows_of({trace, "--policy", "all", "--budget", "500MB,1GB"});
    REQUIRE(rows.size() == 18);
    for (const char* key :
         {"policy", "ratio", "snapshots", "budget_bytes", "token_hit_rate", "flops_saved",
          "prefill_seconds_saved", "evictions", "flips", "bytes_by_owner"}) {
      CHECK(rows[0].contains(key));
    }
    CHECK(rows[0]["budget_bytes"] == 500'000'000);
    const std::string plot = (folder.path() / "plot.svg").string();
    const ToolResult table =
        run_tool({.arguments = {"replay", trace, "--budget", "500MB,1GB", "--plot", plot}});
    CHECK(table.exit_code == 0);
    CHECK(contains(table.out, "hit %"));
    CHECK(contains(table.out, "1000 requests"));
    CHECK(contains(read_whole_file(plot, 1U << 20), "</svg>"));
    const Json cut = rows_of({trace, "--memory-mode", "flip", "--budget", "1GB"});
    for (std::size_t row = 0; row < cut.size(); ++row) {
      const Json& owners = cut[row]["bytes_by_owner"];
      std::int64_t sum = 0;
      for (const char* owner : {"kv", "snapshots", "idle", "free"}) {
        sum += owners[owner].get<std::int64_t>();
      }
      CHECK(sum == 1'000'000'000);
      const bool is_ours = cut[row]["policy"] == "lru" || cut[row]["policy"] == "gd";
      CHECK((cut[row]["flips"] > 0) == is_ours);
      CHECK((owners["idle"] > 0) == is_ours);
    }
    for (const char* report : {"reuse", "bytes", "efficiency", "bins", "quantiles"}) {
      CHECK(rows_of({trace, "--report", report}).size() >= 2);
    }
  }

  TEST_CASE("what is wrong is said, with the exit code of its kind") {
    const TemporaryFolder folder;
    const auto bad = folder.write("bad.jsonl", "{\"t\":0}\n");
    const auto code = [](std::vector<std::string> arguments) {
      const ToolResult result = run_tool({.arguments = std::move(arguments)});
      CHECK(result.out == "");
      CHECK(result.err != "");
      return result.exit_code;
    };
    CHECK(code({"replay"}) == 2);
    CHECK(code({"replay", (folder.path() / "none").string()}) == 3);
    CHECK(code({"replay", bad.string()}) == 3);
    CHECK(code({"replay", bad.string(), "--policy", "best"}) == 2);
    CHECK(code({"replay", bad.string(), "--budget", "80%"}) == 2);
    CHECK(code({"replay", bad.string(), "--budget", "1"}) == 2);  // GB, but it does not say so
    CHECK(code({"replay", bad.string(), "--shape", "marconi-7b,x=1"}) == 2);
    CHECK(code({"replay", bad.string(), "--report", "all"}) == 2);
    CHECK(code({"replay", bad.string(), "--memory-mode", "flat"}) == 2);
  }
}

}  // namespace surface_replay_test
