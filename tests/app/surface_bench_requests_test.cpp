#include <sys/stat.h>

#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "tests/app/run_tool.h"
#include "tests/support/error_text.h"
#include "tests/support/files.h"

namespace surface_bench_requests_test {

using namespace hyb;
using namespace hyb::testing;

namespace {

ToolResult bench(std::vector<std::string> arguments) {
  return run_command("bench", std::move(arguments));
}

/// The rows of `-o json`; each is sound in itself.
Json request_rows(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"-o", "json"});
  const ToolResult result = bench(std::move(arguments));
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  Json all = parse_json(result.out, "stdout");
  for (const Json& row : all) {
    CHECK(row["status"] == "ok");
    CHECK(row["failed"] == 0);
    std::int64_t inputs = 0, outputs = 0;
    for (const Json& length : row["input_lens"]) inputs += length.get<std::int64_t>();
    for (const Json& length : row["output_lens"]) outputs += length.get<std::int64_t>();
    CHECK(row["total_input_tokens"] == inputs);
    CHECK(row["total_output_tokens"] == outputs);
    CHECK(row["reused_tokens"].get<std::int64_t>() + row["prefilled_tokens"].get<std::int64_t>() ==
          inputs);
    CHECK(row["completed"] == row["ttfts"].size());
    CHECK(row["runner_share"].get<double>() > 0);
    CHECK(row["roofline_share"].get<double>() > 0);
  }
  return all;
}

}  // namespace

TEST_SUITE("app/surface_bench_requests") {
  TEST_CASE("conditions differ as they must") {
    const Json all =
        request_rows({"demo", "--dataset-name", "random", "--random-input-len", "96",
                      "--random-output-len", "8", "--num-prompts", "4", "--max-concurrency", "1,2",
                      "--ignore-eos", "-r", "2", "--condition", "cold,warm,turn-2"});
    REQUIRE(all.size() == 6);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Json& row = all[i];
      CHECK(row["completed"] == 8);
      for (const Json& length : row["output_lens"]) CHECK(length == 8);
      const auto most = row["max_concurrent_requests"].get<std::int64_t>();
      CHECK(most == (i < 3 ? 1 : 2));
      if (row["condition"] == "cold") CHECK(row["reused_tokens"] == 0);
      if (row["condition"] == "warm") CHECK(row["reused_tokens"] == 8 * 95);
      if (row["condition"] == "turn-2") {
        CHECK(row["total_input_tokens"] == 8 * (96 + 8 + 64));
        CHECK(row["reused_tokens"].get<std::int64_t>() >= 8 * 96);
      }
    }
  }

  TEST_CASE("--spec-acceptance: rows without drafts, and with right, wrong and mixed ones") {
    // The second one's own layer drafts.
    for (const std::string model : {"demo", HYB_TESTS_DIR "/demo/mtp"}) {
      CAPTURE(model);
      const Json all = request_rows({model,
                                     "--dataset-name",
                                     "random",
                                     "--random-input-len",
                                     "24",
                                     "--random-output-len",
                                     "41",
                                     "--num-prompts",
                                     "3",
                                     "--ignore-eos",
                                     "-r",
                                     "2",
                                     "--max-concurrency",
                                     "2",
                                     "--condition",
                                     "turn-2",
                                     "--draft-steps",
                                     "3",
                                     "--spec-acceptance",
                                     "off,1,0,0.5"});
      REQUIRE(all.size() == 4);
      const auto count = [&](std::size_t row, const char* key) {
        return all[row][key].get<std::int64_t>();
      };
      for (std::size_t row = 0; row < all.size(); ++row) {
        CHECK(all[row]["total_output_tokens"] == 2 * 3 * 41);
        CHECK((count(row, "verify_steps") > 0) == (row > 0));
      }
      CHECK(all[0]["spec_acceptance"] == "off");
      CHECK(all[0]["acceptance_length"].is_null());
      CHECK(all[0]["acceptance_by_position"].empty());
      // 40 tokens after the first one: ten steps of four.
      CHECK(all[1]["acceptance_length"] == 4.0);
      CHECK(all[1]["acceptance_by_position"] == Json::array({1.0, 1.0, 1.0}));
      CHECK(count(1, "verify_steps") == 2 * 3 * 10);
      CHECK(count(1, "accepted_drafts") == 2 * 3 * 30);
      CHECK(count(1, "rejected_drafts") == 0);
      CHECK(count(1, "steps") < count(0, "steps") / 2);
      CHECK(count(2, "accepted_drafts") == 0);
      CHECK(count(3, "accepted_drafts") > 0);
      CHECK(count(3, "rejected_drafts") > 0);
    }
  }

  TEST_CASE("--spec-acceptance with branches: what is right beside wrong drafts is taken") {
    const auto rows = [&](const char* branches) {
      return request_rows({"demo", "--dataset-name", "random", "--random-input-len", "24",
                           "--random-output-len", "61", "--num-prompts", "4", "--ignore-eos", "-r",
                           "1", "--draft-steps", "3", "--draft-branches", branches,
                           "--spec-acceptance", "1,0,0.4"});
    };
    const Json chain = rows("1"), tree = rows("4");
    CHECK(tree[0]["acceptance_length"] == 4.0);
    CHECK(tree[0]["branches_taken"] == 0);
    CHECK(tree[1]["accepted_drafts"] == 0);
    CHECK(tree[2]["branches_taken"].get<int>() > 10);
    CHECK(tree[2]["acceptance_length"].get<double>() >
          chain[2]["acceptance_length"].get<double>() + 0.2);
  }

  TEST_CASE("in turns: the same requests, every row has all its repetitions") {
    std::vector<std::string> flags = {"--dataset-name",
                                      "random",
                                      "--random-input-len",
                                      "24",
                                      "--random-output-len",
                                      "3",
                                      "--num-prompts",
                                      "3",
                                      "--max-concurrency",
                                      "1,2",
                                      "--random-range-ratio",
                                      "0.5",
                                      "-r",
                                      "2",
                                      "--condition",
                                      "cold,warm",
                                      "demo"};
    const Json one_by_one = request_rows(flags);
    flags.push_back("--in-turns");
    const Json in_turns = request_rows(flags);
    REQUIRE(in_turns.size() == 4);
    for (std::size_t i = 0; i < in_turns.size(); ++i) {
      CHECK(in_turns[i]["output_throughputs"].size() == 2);
      for (const char* key : {"input_lens", "reused_tokens", "condition", "experiment"}) {
        CHECK(in_turns[i][key] == one_by_one[i][key]);
      }
    }
  }

  TEST_CASE("in turns: every row comes once before any comes again") {
    const TemporaryFolder folder;
    const auto lengths = [&](std::vector<std::string> more) {
      const std::string trace = (folder.path() / std::to_string(more.size())).string();
      std::vector<std::string> flags = {"demo", "--dataset-name",      "random", "--num-prompts",
                                        "1",    "--random-output-len", "2",      "-r",
                                        "2",    "--random-input-len",  "16,24",  "--record",
                                        trace};
      flags.insert(flags.end(), more.begin(), more.end());
      static_cast<void>(request_rows(flags));
      std::vector<int> prompts;
      std::ifstream in(trace);
      for (std::string line; std::getline(in, line);) {
        const Json request = parse_json(line, "trace");
        int tokens = 0;
        for (const Json& run : request["prompt"]) tokens += run[1].get<int>();
        prompts.push_back(tokens);
      }
      return prompts;
    };
    CHECK(lengths({}) == std::vector<int>{16, 16, 24, 24});
    CHECK(lengths({"--in-turns"}) == std::vector<int>{16, 24, 16, 24});
  }

  TEST_CASE("an open loop, goals, percentiles; a trace of what was measured and nothing else") {
    const TemporaryFolder folder;
    const std::string trace = (folder.path() / "t.jsonl").string();
    const Json all = request_rows({"demo",       "--dataset-name",
                                   "random",     "--random-input-len",
                                   "32",         "--random-output-len",
                                   "4",          "--num-prompts",
                                   "6",          "--request-rate",
                                   "20",         "--burstiness",
                                   "0.5",        "--ignore-eos",
                                   "-r",         "1",
                                   "--goodput",  "ttft:60000",
                                   "e2el:60000", "--metric-percentiles",
                                   "75,99.9",    "--record",
                                   trace});
    REQUIRE(all.size() == 1);
    CHECK(all[0]["experiment"] == "open loop, 20/s");
    CHECK(all[0]["duration"].get<double>() >= 0.3);
    CHECK(all[0]["request_goodput"] == all[0]["request_throughput"]);
    CHECK(all[0].contains("p99.9_itl_ms"));
    const ToolResult replay =
        run_tool({.arguments = {"replay", trace, "--policy", "none", "--json"}});
    CHECK(parse_json(replay.out, "stdout")[0]["requests"] == 6);

    const ToolResult traced =
        bench({"demo", "--dataset-name", "trace", "--dataset-path", trace, "-r", "1"});
    CHECK(traced.exit_code == 0);
    CHECK(contains(traced.out, "TTFT P5 ms (of none)"));
  }

  TEST_CASE("a trace under any policy: the model prefills what the policy would") {
    const TemporaryFolder folder;
    const std::string trace = (folder.path() / "t.jsonl").string();
    std::ofstream(trace)
        << R"({"t":0,"session":"a","turn":0,"prompt":[[1,100],[2,20]],"output":[[3,8]]})" << '\n'
        << R"({"t":1,"session":"b","turn":0,"prompt":[[1,100],[4,20]],"output":[[5,8]]})" << '\n'
        << R"({"t":2,"session":"a","turn":1,"prompt":[[1,100],[2,20],[3,8],[6,20]],)"
        << R"("output":[[7,8]]})" << '\n';
    const std::string policies = "none,bound,vllm+,sglang,lru,gd";
    const ToolResult simulated =
        run_tool({.arguments = {"replay", trace, "--shape", "demo", "--policy",
                                "bound,vllm+,sglang", "--json"}});
    REQUIRE(simulated.exit_code == 0);
    const Json expected = parse_json(simulated.out, "stdout");
    const Json all = request_rows({"demo", "--dataset-name", "trace", "--dataset-path", trace,
                                   "--policy", policies, "--ignore-eos", "-r", "1"});
    REQUIRE(all.size() == 6);
    CHECK(all[0]["reused_tokens"] == 0);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(all[i + 1]["policy"]);
      CHECK(all[i + 1]["reused_tokens"] == expected[i]["reused_tokens"]);
    }
    CHECK(all[5]["reused_tokens"].get<int>() > 100);
  }

  TEST_CASE("shared prefixes are prefilled once a group") {
    const Json all =
        request_rows({"demo", "--preset", "sglang-gsp", "--scale-down", "64", "--gsp-num-groups",
                      "3", "--gsp-prompts-per-group", "4", "--gsp-output-len", "256", "-r", "1"});
    REQUIRE(all.size() == 1);
    CHECK(all[0]["workload"] == "generated-shared-prefix 3x4x160+4+4");
    CHECK(all[0]["max_concurrency"] == 5);
    CHECK(all[0]["reused_tokens"] == 3 * 3 * 160);
  }

  TEST_CASE("vLLM's workload and send_one, scaled down") {
    const Json vllm = request_rows({"demo", "--preset", "vllm-hybrid", "--scale-down", "256",
                                    "--max-concurrency", "1,4", "-r", "1"});
    REQUIRE(vllm.size() == 2);
    CHECK(vllm[0]["workload"] == "random 128+2");
    CHECK(vllm[1]["completed"] == 40);
    const Json one =
        request_rows({"demo", "--preset", "sglang-send-one", "--scale-down", "64", "-r", "2"});
    REQUIRE(one.size() == 1);
    CHECK(one[0]["completed"] == 2);
    CHECK(one[0]["input_lens"][0] == one[0]["input_lens"][1]);
  }

  TEST_CASE("a batch file and a text") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "in.jsonl").string();
    std::ofstream(file) << R"({"prompt":"What is in the box?","max_tokens":3})" << '\n'
                        << R"({"prompt":"Who lives here?"})" << '\n';
    const Json asked = request_rows({"demo", "--dataset-name", "file", "--dataset-path", file,
                                     "--custom-output-len", "5", "--ignore-eos", "-r", "1"});
    CHECK(asked[0]["output_lens"] == Json({3, 5}));
    const Json cut = request_rows({"demo", "--dataset-name", "corpus", "--dataset-path", file,
                                   "--random-input-len", "12", "--random-output-len", "2",
                                   "--num-prompts", "3", "--ignore-eos", "-r", "1"});
    CHECK(cut[0]["input_lens"] == Json({12, 12, 12}));
    std::ofstream(file) << "few words";
    const ToolResult some =
        bench({"demo", "--dataset-name", "corpus", "--dataset-path", file, "--random-input-len",
               "1000,1", "--random-output-len", "2", "--num-prompts", "1", "-r", "1"});
    CHECK(some.exit_code == 0);  // the row of the first case says why, the second is measured
    CHECK(contains(some.out, "a prompt needs 1000"));
    CHECK(contains(some.out, "corpus 1+2"));
  }

  TEST_CASE("scrambled pools give the same counts; synthetic weights never end by themselves") {
    const Json all = request_rows({"demo", "--quiet", "--random-weights", "3", "--dataset-name",
                                   "random", "--random-input-len", "40", "--random-output-len", "6",
                                   "--num-prompts", "2", "-r", "1", "--scramble", "7"});
    CHECK(all[0]["output_lens"] == Json({6, 6}));
    CHECK(all[0]["ignore_eos"] == true);
    CHECK(contains(all[0]["note"].get<std::string>(), "synthetic weights"));
  }

  TEST_CASE("what does not fit is a row that says so; a plot") {
    const TemporaryFolder folder;
    const std::string svg = (folder.path() / "p.svg").string();
    const ToolResult some = bench({"demo", "--dataset-name", "random", "--random-input-len",
                                   "16,5000", "--random-output-len", "2", "--num-prompts", "2",
                                   "--context", "64", "-r", "1", "--svg", svg, "-o", "jsonl"});
    CHECK(some.exit_code == 0);
    CHECK(contains(some.out, "2 of 2 requests failed: "));
    const mode_t masked = ::umask(0);
    ::umask(masked);
    struct stat plot {};
    REQUIRE(::stat(svg.c_str(), &plot) == 0);
    CHECK((plot.st_mode & 0777U) == (0666U & ~masked));  // others read it, as any output
    const ToolResult none = bench({"demo", "--dataset-name", "random", "--random-input-len", "5000",
                                   "--random-output-len", "2", "--num-prompts", "1", "--context",
                                   "64", "-r", "1", "-o", "jsonl"});
    CHECK(none.exit_code == 4);
    CHECK(parse_json(none.out, "line")["completed"] == 0);
    const ToolResult people = bench({"demo", "--preset", "vllm-hybrid", "--num-prompts", "4"});
    CHECK((people.exit_code == 4 && people.out == ""));
    CHECK(contains(people.err, "no request fits: the shortest prompt has "));
  }

  TEST_CASE("comparing: a run with itself is no regression, a row less is") {
    const TemporaryFolder folder;
    const std::string before = (folder.path() / "a.json").string(),
                      after = (folder.path() / "b.json").string();
    const ToolResult two = bench({"demo", "-p", "16", "-n", "2", "-r", "3", "-o", "json"});
    REQUIRE(two.exit_code == 0);
    Json output = parse_json(two.out, "stdout");
    std::ofstream(before) << to_text(output);
    CHECK(bench({"compare", before, before}).exit_code == 0);
    output.erase(0);
    std::ofstream(after) << to_text(output);
    const ToolResult worse = bench({"compare", before, after});
    CHECK(worse.exit_code == 6);
    CHECK(contains(worse.out, "MISSING"));
    CHECK(bench({"compare", before, "/nowhere"}).exit_code == 3);
    CHECK(bench({"compare", before}).exit_code == 2);
  }

  TEST_CASE("comparing: a value of the wrong type is named with its file, row and key") {
    const TemporaryFolder folder;
    const auto compared = [&](const std::string& text) {
      const std::string path = folder.write("rows.json", text).string();
      const ToolResult result = bench({"compare", path, path});
      CHECK(result.exit_code == 3);
      CHECK(result.out == "");
      return result.err;
    };
    CHECK(contains(compared(R"([{"n_prompt":99999999999,"samples_ts":[1]}])"),
                   "rows.json: row 1: n_prompt must be a whole number from 0 to 2147483647, is "
                   "99999999999"));
    CHECK(contains(compared(R"([{"workload":"w"},{"workload":{"a":1}}])"),
                   "rows.json: row 2: workload must be a text, is {\"a\":1}"));
    CHECK(contains(compared(R"([{"samples_ts":[1,"x"]}])"),
                   "rows.json: row 1: samples_ts must be a list of numbers, is [1,\"x\"]"));
    CHECK(contains(compared("{}"), "rows.json: no rows of a benchmark"));
  }

  TEST_CASE("elastic-shift: every way to share memory answers the same load; flips are counted") {
    const ToolResult result = bench({"demo", "--preset", "elastic-shift", "--state-share",
                                     "0.2,0.8", "-r", "1", "-o", "json", "-q"});
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    const Json all = parse_json(result.out, "stdout");
    REQUIRE(all.size() == 3 * 3);  // elastic and two shares; each phase, and both
    const std::vector<std::string> memory = {"elastic", "0.2", "0.8"};
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      CHECK(all[i]["memory"] == memory[i / 3]);
      CHECK(all[i]["requests"] == all[i % 3]["requests"]);
      CHECK(all[i]["output_tokens"] == all[i % 3]["output_tokens"]);
      CHECK(all[i]["duration_s"].get<double>() > 0);
      CHECK(all[i]["median_ttft_ms"].get<double>() > 0);
      CHECK((all[i]["flips"].get<std::int64_t>() > 0) == (i / 3 == 0));
    }
    CHECK(all[2]["flip_steps"].get<std::int64_t>() > 0);
    // What the ratio leaves too little for runs fewer at once, in more steps.
    CHECK(all[3]["mean_running"].get<double>() > 1.5 * all[6]["mean_running"].get<double>());
    CHECK(all[7]["mean_running"].get<double>() > 1.5 * all[4]["mean_running"].get<double>());
    CHECK(all[0]["steps"] < all[6]["steps"]);
    CHECK(all[1]["steps"] < all[4]["steps"]);
  }

  TEST_CASE("usage errors") {
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"demo", "--num-prompts", "3"},
             {"demo", "--dataset-name", "random", "-p", "8"},
             {"demo", "--dataset-name", "sharegpt"},
             {"demo", "--preset", "fast"},
             {"demo", "-p", "8", "--plot", "x.png"},
             {"demo", "--dataset-name", "trace"},
             {"demo", "--dataset-name", "random", "--goodput", "itl:5"},
             {"demo", "--dataset-name", "random", "--seed", "-1"},
             {"demo", "--dataset-name", "random", "--scramble", "-1"},
             {"demo", "--dataset-name", "random", "--scramble", "1", "--audit"},
             {"demo", "--dataset-name", "random", "--state-share", "0.5"},
             {"demo", "--preset", "elastic-shift", "--state-share", "1.5"},
             {"demo", "--preset", "elastic-shift", "--random-input-len", "8"},
             {"demo", "--preset", "elastic-shift", "--disaggregate"},
             {"demo", "--preset", "elastic-shift", "--memory-mode", "flat"}}) {
      CAPTURE(arguments.back());
      const ToolResult result = bench(arguments);
      CHECK(result.exit_code == 2);
      CHECK(result.out == "");
      CHECK(result.err != "");
    }
  }
}

}  // namespace surface_bench_requests_test
