#include "app/bench/bench_options.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <CLI/CLI.hpp>

#include "app/replay/replay.h"
#include "core/base/error.h"

namespace bench_options_test {

using namespace hyb;
using namespace hyb::app;

namespace {

/// The options of a command line.
BenchOptions parsed(std::vector<std::string> arguments) {
  CLI::App cli;
  BenchOptions options;
  options.lab = policy_lab();
  add_bench_options(cli, options);
  std::reverse(arguments.begin(), arguments.end());
  cli.parse(arguments);
  apply_preset(options);
  check_flags(cli, options);
  return options;
}

std::vector<RequestCase> cases(std::vector<std::string> arguments) {
  return request_cases(parsed(std::move(arguments)));
}

/// What is wrong with a command line; "": nothing.
std::string refusal(std::vector<std::string> arguments) {
  try {
    const BenchOptions options = parsed(std::move(arguments));
    if (options.measures_requests()) {
      static_cast<void>(request_cases(options));
    } else {
      static_cast<void>(kernel_cases(options));
    }
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
}

}  // namespace

TEST_SUITE("app/bench/bench_options") {
  TEST_CASE("vLLM's workload for hybrids") {
    const std::vector<RequestCase> all = cases({"--preset", "vllm-hybrid"});
    REQUIRE(all.size() == 6);
    CHECK(all[0].workload() == "random 32768+128");
    CHECK(all[0].prompts == 10);
    CHECK(all[5].concurrency == 32);
    CHECK(all[5].prompts == 320);
  }

  TEST_CASE("SGLang's workloads") {
    const std::vector<RequestCase> shared = cases({"--preset", "sglang-gsp"});
    REQUIRE(shared.size() == 1);
    CHECK(shared[0].workload() == "generated-shared-prefix 50x10x10240+256+128");
    CHECK(shared[0].concurrency == 5);
    const std::vector<RequestCase> one = cases({"--preset", "sglang-send-one"});
    REQUIRE(one.size() == 1);
    CHECK(one[0].workload() == "send_one +512");
    CHECK(one[0].prompts == 1);
  }

  TEST_CASE("flags override a preset, and scale it down") {
    const std::vector<std::string> flags = {
        "--preset",          "sglang-gsp", "--gsp-num-groups", "3",
        "--max-concurrency", "1,2",        "--scale-down",     "64"};
    CHECK(parsed(flags).ignore_eos);
    const std::vector<RequestCase> all = cases(flags);
    REQUIRE(all.size() == 2);
    CHECK(all[1].workload() == "generated-shared-prefix 3x10x160+4+2");
    CHECK(all[1].concurrency == 2);
    CHECK(cases({"--preset", "vllm-hybrid", "--scale-down", "128"})[0].workload() ==
          "random 256+2");
  }

  TEST_CASE("how many requests there are by default") {
    CHECK(cases({"--dataset-name", "random"})[0].experiment() == "closed loop, 1 at once");
    CHECK(cases({"--dataset-name", "random"})[0].prompts == 10);
    CHECK(cases({"--dataset-name", "random", "--request-rate", "2"})[0].experiment() ==
          "open loop, 2/s");
    CHECK(cases({"--dataset-name", "random", "--request-rate", "2"})[0].prompts == 100);
    CHECK(cases({"--dataset-name", "random", "--request-rate", "2", "--num-prompts", "7"})[0]
              .prompts == 7);
  }

  TEST_CASE("flags that mean nothing for what is measured are refused by name") {
    struct Row {
      std::vector<std::string> arguments;
      const char* refusal;  ///< how it begins
    };
    const Row rows[] = {
        {{"--dataset-name", "random", "--gsp-num-groups", "3"},
         "--gsp-num-groups: means nothing for --dataset-name random"},
        {{"--dataset-name", "send_one", "--random-input-len", "3"}, "--random-input-len: "},
        {{"--dataset-name", "send_one", "--gsp-question-len", "3"}, "--random-input-len: "},
        {{"--dataset-name", "corpus", "--dataset-path", "x", "--random-range-ratio", "0"},
         "--random-range-ratio: "},
        {{"--dataset-name", "random", "--trace-times"}, "--trace-times: "},
        {{"--dataset-name", "trace"}, "--dataset-path is missing"},
        {{"--dataset-name", "trace", "--dataset-path", "x", "--request-rate", "1"},
         "--request-rate: "},
        {{"--dataset-name", "trace", "--dataset-path", "x", "--condition", "cold"},
         "--condition: "},
        {{"--dataset-name", "file", "--dataset-path", "x", "--random-output-len", "4,9"},
         "--random-output-len: --dataset-name file takes one length"},
        {{"--dataset-name", "random", "--max-concurrency", "0"},
         "--max-concurrency: 0 is not from 1 to 4096"},
        {{"--dataset-name", "random", "--lanes", "colocated,both"},
         "--lanes: 'both' is none of colocated, disaggregated"},
        {{"--lanes", "colocated"}, "--lanes: is for requests"},
        {{"--dataset-name", "random", "--policy", "vllm"},
         "--policy vllm: is for --dataset-name trace; for random there are gd, lru and none"},
        {{"--dataset-name", "random", "--policy", "nosuch"},
         "--policy nosuch: there is no policy of this name"},
        {{"--dataset-name", "trace", "--dataset-path", "x", "--policy", "nosuch"},
         "--policy nosuch: there is no policy of this name"},
        {{"--dataset-name", "trace", "--dataset-path", "x", "--policy", "all"}, "--policy all: "},
        {{"--dataset-name", "trace", "--dataset-path", "x", "--policy", "vllm", "--max-concurrency",
          "2"},
         "--policy vllm: "},
        {{"--dataset-name", "random", "--preset", "sglang-gsp"}, "--preset sglang-gsp: "},
        {{"--preset", "unknown"}, "--preset: 'unknown'"},
        {{"--dataset-name", "random", "-p", "512"},
         "-p: is for tests of kernels: leave --dataset-name and --preset out"},
        {{"--num-prompts", "4"},
         "--num-prompts: is for requests: name them with --dataset-name or --preset"},
        {{"-b", "0"}, "-b: 0 is not from 1 to 1024"},
        {{"-b", "2048"}, "-b: 2048 is not from 1 to 1024; llama-bench's -b is -u here"},
        {{"-p", "0", "-n", "0"}, "bench: nothing to measure"},
        {{"-n", "0", "-b", "2"}, "-b: counts sequences"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.refusal);
      const std::string text = refusal(row.arguments);
      CHECK(text != "");
      CHECK(text.starts_with(row.refusal));
    }
    CHECK(cases({"--dataset-name", "file", "--dataset-path", "x", "--random-output-len", "9"})[0]
              .output_tokens == 9);
    CHECK(refusal({"-p", "8", "-n", "0"}) == "");
  }

  TEST_CASE("a sweep with prompts among answers and in a lane of their own, side by side") {
    const std::vector<RequestCase> all = cases({"--preset", "pd-sweep"});
    REQUIRE(all.size() == 10);
    CHECK(all[0].workload() == "random 1024+128");
    CHECK(all[0].lanes == "colocated");
    CHECK(all[1].lanes == "disaggregated");
    CHECK(all[1].concurrency == 1);
    CHECK(all[9].concurrency == 16);
    CHECK(all[8].prompts == all[9].prompts);
    CHECK(parsed({"--preset", "pd-sweep"}).names_second_lane());
    CHECK(cases({"--preset", "pd-sweep", "--lanes", "disaggregated"}).size() == 5);
    CHECK_FALSE(parsed({"--dataset-name", "random", "--lanes", "colocated"}).names_second_lane());
  }

  TEST_CASE("a trace is run under no policy and hyb's, unless one is named") {
    const std::vector<RequestCase> all = cases({"--dataset-name", "trace", "--dataset-path", "x"});
    REQUIRE(all.size() == 2);
    CHECK(all[0].policy == "none");
    CHECK(all[1].policy == "gd");
  }
}

}  // namespace bench_options_test
