#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/ui/text.h"
#include "core/base/json.h"
#include "core/io/safetensors.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_bench_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult bench(std::vector<std::string> arguments) {
  return run_command("bench", std::move(arguments));
}

/// The rows of `-o json`.
Json rows(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"-o", "json", "-q"});
  const ToolResult result = bench(std::move(arguments));
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return parse_json(result.out, "stdout");
}

}  // namespace

TEST_SUITE("app/surface_bench") {
  TEST_CASE("JSON: every combination is a row with rates and probes") {
    const Json all = rows({"demo", "-p", "16", "-n", "4", "-d", "0,40", "-b", "1,3", "-r", "2"});
    REQUIRE(all.size() == 2 * (1 + 2));
    for (const Json& row : all) {
      CHECK(row["status"] == "ok");
      CHECK(row["samples_ns"].size() == 2);
      CHECK(row["avg_ts"].get<double>() > 0);
      CHECK(row["bytes_per_s"].get<double>() > 0);
      CHECK(row["probe_bytes_per_s"].get<double>() > 1e8);
      CHECK(row["probe_flops_per_s"].get<double>() > 1e8);
      CHECK(row["device"] == "cpu");
      CHECK(row["depth"] == row["n_depth"]);
    }
    CHECK(all[0]["n_prompt"] == 16);
    CHECK(all[0]["n_gen"] == 0);
  }

  TEST_CASE("what was measured is recorded as a trace") {
    const TemporaryFolder folder;
    const std::string trace = (folder.path() / "bench.jsonl").string();
    rows({"demo", "-p", "16", "-n", "4", "-d", "40", "-b", "2", "-r", "3", "--record", trace});
    const ToolResult result =
        run_tool({.arguments = {"replay", trace, "--policy", "none,gd", "--json"}});
    REQUIRE(result.exit_code == 0);
    const Json replayed = parse_json(result.out, "stdout");
    CHECK(replayed[0]["requests"] == 3 * (1 + 2));  // pp16 alone, tg4 of two sequences
    CHECK(replayed[0]["prompt_tokens"] == 3 * (56 + 2 * 40));
    // Within a case a sequence begins with the same 40 tokens in every repetition.
    CHECK(replayed[1]["reused_tokens"] > 0);
  }

  TEST_CASE("synthetic weights for a published configuration, lines and a table") {
    const ToolResult made = bench({"granite-4.0-h-350m", "--random-weights", "1", "-p", "8", "-n",
                                   "0", "-r", "1", "-o", "jsonl"});
    CHECK(made.exit_code == 0);
    CHECK(parse_json(made.out, "line")["model_filename"] == "granite-4.0-h-350m");
    const ToolResult lines =
        bench({"demo", "-p", "0", "-n", "2", "-pg", "8,2", "-r", "1", "-o", "jsonl"});
    std::istringstream text(lines.out);
    int count = 0;
    for (std::string line; std::getline(text, line); ++count) {
      CHECK(parse_json(line, "line").contains("avg_ts"));
    }
    CHECK(count == 2);
    const std::vector<std::string> asked = {"demo", "-p", "8", "-n", "0", "-r", "1"};
    const ToolResult plain = bench(asked);
    CHECK(plain.out.starts_with("demo, granitemoehybrid"));
    std::istringstream shown(plain.out);
    for (std::string line; std::getline(shown, line);) CHECK(hyb::app::columns(line) <= 80);
    std::vector<std::string> all = asked;
    all.insert(all.end(), {"-o", "md"});
    const ToolResult table = bench(all);
    CHECK(contains(table.out, "| model"));
    for (const std::string& out : {plain.out, table.out}) {
      CHECK(contains(out, "pp8"));
      CHECK(contains(out, "±"));
    }
  }

  TEST_CASE("synthetic weights in the formats that models are published in") {
    const std::string folder = std::string(HYB_TESTS_DIR) + "/golden/qwen3-next";
    for (const auto& [format, name] : {std::pair{"fp8", "FP8"}, {"mxfp4", "MXFP4"}, {"q4", "q4"}}) {
      CAPTURE(format);
      const ToolResult made = bench(
          {folder, "--random-weights", "1", "--quantize", format, "-p", "8", "-n", "2", "-r", "1"});
      CHECK(made.exit_code == 0);
      CHECK(contains(made.out, name));
      CHECK(contains(made.err, "made up from seed 1"));
      CHECK(contains(made.err, name));
    }
    const ToolResult files = bench({folder, "--quantize", "fp8"});
    CHECK(files.exit_code == 2);
    CHECK(contains(files.err, "made up with --random-weights"));
    const ToolResult dense =
        bench({"qwen3.5-0.8b", "--random-weights", "1", "--quantize", "mxfp4"});
    CHECK(dense.exit_code == 2);
    CHECK(contains(dense.err, "only experts are published so"));
  }

  TEST_CASE("what does not fit is a row that says so; nothing that fits is exit 4") {
    const Json all =
        rows({"demo", "-p", "16", "-n", "2", "-d", "0,4000000", "-r", "1", "--memory", "1300MiB"});
    REQUIRE(all.size() == 4);
    CHECK(all[0]["status"] == "ok");
    CHECK(all[2]["status"].get<std::string>().starts_with("does not fit: needs "));
    CHECK(all[2]["bytes_per_s"].is_null());

    const ToolResult none = bench({"demo", "-p", "64", "-n", "0", "-r", "1", "--context", "32"});
    CHECK(none.exit_code == 4);
    CHECK(contains(none.out, "64 tokens are more than --context 32"));
    CHECK(bench({"granite-4.0-h-350m", "--random-weights", "1", "--memory", "100MB"}).exit_code ==
          4);
  }

  TEST_CASE("without room for the read probe its figures are missing, with a warning") {
    const ToolResult result =
        bench({"demo", "-p", "16", "-n", "0", "-r", "1", "--memory", "100MiB", "-o", "json"});
    CHECK(result.exit_code == 0);
    CHECK(contains(result.err, "no room for the 1 GiB of the read probe"));
    CHECK(parse_json(result.out, "stdout")[0]["probe_bytes_per_s"].is_null());
  }

  TEST_CASE("a model whose logits are not numbers has no speed: rows that say so, exit 1") {
    const TemporaryFolder folder;
    std::filesystem::copy(std::filesystem::path(HYB_TESTS_DIR).parent_path() / "models/demo",
                          folder.path(), std::filesystem::copy_options::recursive);
    const std::filesystem::path weights = folder.path() / "model.safetensors";
    {
      const SafetensorsFile file(weights);
      const std::size_t header = std::filesystem::file_size(weights) - file.tensors().back().end;
      std::fstream out(weights, std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(static_cast<std::streamoff>(header + file.find("model.norm.weight")->begin));
      out.write("\xc0\x7f", 2);  // a bf16 NaN
    }
    const std::string model = folder.path().string();
    const ToolResult steps = bench({model, "-p", "16", "-n", "2", "-r", "2", "-o", "json"});
    CHECK(steps.exit_code == 1);
    const Json rows = parse_json(steps.out, "stdout");
    REQUIRE(rows.size() == 2);
    for (const Json& row : rows) {
      CHECK(contains(row["status"].get<std::string>(), "NaN logits"));
      CHECK(row["samples_ns"].empty());
    }
    const ToolResult requests = bench({model, "--dataset-name", "random", "--random-input-len",
                                       "16", "--num-prompts", "2", "-r", "1", "-o", "jsonl"});
    CHECK(requests.exit_code == 1);
    CHECK(contains(requests.out, "2 of 2 requests failed: the model produced NaN logits"));
  }

  TEST_CASE("deeper rows go on from those before, and give the same work") {
    const Json all =
        rows({"demo", "-p", "0", "-n", "4", "-d", "64,0,32,128", "-b", "1,2", "-r", "1"});
    REQUIRE(all.size() == 8);
    for (const Json& row : all) CHECK(row["avg_ts"].get<double>() > 0);
  }

  TEST_CASE("usage errors") {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"demo", "-p", "many"},
                                               {"demo", "-p", "0", "-n", "0"},
                                               {"demo", "-p", "8", "-n", "0", "-b", "4"},
                                               {"demo", "-b", "0"},
                                               {"demo", "-pg", "12"},
                                               {"demo", "-r", "0"},
                                               {"demo", "-p", "8", "--prefix-cache", "off"},
                                               {"demo", "-p", "8", "--snapshots", "int8"},
                                               {"demo", "-p", "8", "--audit"},
                                               {"demo", "-p", "8", "--memory-mode", "flip"},
                                               {"demo", "-p", "8", "--pool-memory", "1GiB"},
                                               {"demo", "-p", "8", "--strict-vmm"},
                                               {"demo", "-p", "8", "--spec", "off"},
                                               {"demo", "--spec-acceptance", "1"},
                                               {"demo", "-o", "xml"}}) {
      CAPTURE(arguments.back());
      const ToolResult result = bench(arguments);
      CHECK(result.exit_code == 2);
      CHECK(result.out == "");
      CHECK(result.err != "");
    }
    CHECK(bench({"/nowhere"}).exit_code == 3);
    CHECK(bench({"granite-4.0-h-350m"}).exit_code == 3);
  }

  TEST_CASE("Ctrl-C: what was measured is printed, exit 130") {
    Json all;
    // Without --foreground timeout signals the program and then its group: a second Ctrl-C at
    // times.
    for (const char* seconds : {"3", "9", "27"}) {  // a busy machine has measured nothing so soon
      const ToolResult result =
          run_shell(std::string("timeout --foreground --preserve-status -s INT ") + seconds +
                    " $HYB bench demo -p 16 -n 8 -r 10000 -d 0 -o json");
      CHECK(result.exit_code == 130);
      all = parse_json(result.out, "stdout");
      if (!all.empty()) break;
    }
    REQUIRE(all.size() >= 1);
    CHECK(all.back()["status"].get<std::string>().starts_with("interrupted: "));
  }
}

}  // namespace surface_bench_test
