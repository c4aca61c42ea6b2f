#include <doctest/doctest.h>

#include "app/bench/bench_options.h"
#include "core/base/error.h"

namespace bench_options_test {

using namespace hyb;
using namespace hyb::app;

namespace {

std::vector<RequestCase> preset(const std::string& name, std::int32_t scale_down = 1) {
  WorkloadOptions options;
  options.preset = name;
  options.scale_down = scale_down;
  apply_preset(options);
  return cases_of(options);
}

WorkloadOptions of(const std::string& dataset) {
  WorkloadOptions options;
  options.dataset = dataset;
  return options;
}

}  // namespace

TEST_SUITE("app/bench/workload_options") {
  TEST_CASE("vLLM's workload for hybrids") {
    const std::vector<RequestCase> cases = preset("vllm-hybrid");
    REQUIRE(cases.size() == 6);
    CHECK(cases[0].workload() == "random 32768+128");
    CHECK(cases[0].prompts == 10);
    CHECK(cases[5].concurrency == 32);
    CHECK(cases[5].prompts == 320);
  }

  TEST_CASE("SGLang's workloads") {
    const std::vector<RequestCase> shared = preset("sglang-gsp");
    REQUIRE(shared.size() == 1);
    CHECK(shared[0].workload() == "generated-shared-prefix 50x10x10240+256+128");
    CHECK(shared[0].concurrency == 5);
    const std::vector<RequestCase> one = preset("sglang-send-one");
    REQUIRE(one.size() == 1);
    CHECK(one[0].workload() == "send_one +512");
    CHECK(one[0].prompts == 1);
  }

  TEST_CASE("a preset gives way to flags, and is scaled down") {
    WorkloadOptions options;
    options.preset = "sglang-gsp";
    options.groups = {"3"};
    options.concurrencies = {"1,2"};
    options.scale_down = 64;
    apply_preset(options);
    CHECK(options.ignore_eos);
    const std::vector<RequestCase> cases = cases_of(options);
    REQUIRE(cases.size() == 2);
    CHECK(cases[1].workload() == "generated-shared-prefix 3x10x160+4+2");
    CHECK(cases[1].concurrency == 2);
    CHECK(preset("vllm-hybrid", 128)[0].workload() == "random 256+2");
  }

  TEST_CASE("how many requests, where nobody says") {
    WorkloadOptions options = of("random");
    CHECK(cases_of(options)[0].experiment() == "closed loop, 1 at once");
    CHECK(cases_of(options)[0].prompts == 10);
    options.request_rates = "2";
    CHECK(cases_of(options)[0].experiment() == "open loop, 2/s");
    CHECK(cases_of(options)[0].prompts == 100);
    options.prompts = {"7"};
    CHECK(cases_of(options)[0].prompts == 7);
  }

  TEST_CASE("flags that mean nothing for a dataset are refused") {
    const auto refused = [](WorkloadOptions options) {
      CHECK_THROWS_AS(static_cast<void>(cases_of(options)), Error);
    };
    WorkloadOptions options = of("random");
    options.groups = {"3"};
    refused(options);
    options = of("send_one");
    options.input_tokens = {"3"};
    refused(options);
    options = of("trace");
    refused(options);  // no path
    options.path = "x";
    options.request_rates = "1";
    refused(options);
    options = of("file");
    options.path = "x";
    options.output_tokens = {"4,9"};
    refused(options);
    options.output_tokens = {"9"};
    CHECK(cases_of(options)[0].output_tokens == 9);
    options = of("random");
    options.concurrencies = {"0"};
    refused(options);
    options = of("random");
    options.policies = {"vllm"};
    refused(options);
    options = of("trace");
    options.path = "x";
    options.policies = {"nobody"};
    refused(options);
    options.policies = {"vllm"};
    options.concurrencies = {"2"};
    refused(options);
    WorkloadOptions both = of("random");
    both.preset = "sglang-gsp";
    CHECK_THROWS_AS(apply_preset(both), Error);
    both.preset = "unknown";
    CHECK_THROWS_AS(apply_preset(both), Error);
  }

  TEST_CASE("a trace is run under no policy and hyb's, unless one is named") {
    WorkloadOptions options = of("trace");
    options.path = "x";
    const std::vector<RequestCase> cases = cases_of(options);
    REQUIRE(cases.size() == 2);
    CHECK(cases[0].policy == "none");
    CHECK(cases[1].policy == "gd");
  }
}

}  // namespace bench_options_test
