#include "app/options.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

TEST_SUITE("app/options") {
  TEST_CASE("memory sizes are read in decimal and binary units") {
    CHECK(parse_memory("8GiB").bytes == std::size_t{8} << 30);
    CHECK(parse_memory("500MB").bytes == 500'000'000);
    CHECK(parse_memory("1.5KiB").bytes == 1536);
    CHECK(parse_memory("123").bytes == 123);
    CHECK(parse_memory("80%").share == doctest::Approx(0.8));
    CHECK(parse_memory("auto").kind == MemoryBudget::Kind::automatic);
    for (const char* bad : {"", "8 GiB", "GiB", "-1GiB", "0", "101%", "8gib", "1e5", "nan",
                            "9e99TB", "999999999999TiB"}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(parse_memory(bad), Error);
    }
  }

  TEST_CASE("flags win over generation_config.json, which wins over the defaults") {
    const Json config = parse_json(
        R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1})", "f");
    CHECK(sampling_of({}, Json::object()).temperature == 0.0F);
    CHECK(sampling_of({}, config).temperature == 0.7F);
    CHECK(sampling_of({}, config).top_k == 20);
    GenerationOptions flags;
    flags.temperature = 0.0F;
    flags.top_k = 5;
    CHECK(sampling_of(flags, config).temperature == 0.0F);
    CHECK(sampling_of(flags, config).top_k == 5);
    CHECK(sampling_of(flags, config).repetition_penalty == 1.1F);
  }

  TEST_CASE("without do_sample a model is greedy whatever else its file says") {
    const Json config = parse_json(R"({"temperature": 0.7, "top_k": 20})", "f");
    CHECK(sampling_of({}, config).temperature == 0.0F);
  }

  TEST_CASE("a logit bias is ID=BIAS") {
    GenerationOptions flags;
    flags.logit_bias = {"42=-1.5"};
    const SamplingParams params = sampling_of(flags, Json::object());
    REQUIRE(params.bias.size() == 1);
    CHECK(index(params.bias[0].token) == 42);
    CHECK(params.bias[0].bias == -1.5F);
    for (const char* bad : {"42", "=1", "x=1", "1=", "1=x"}) {
      flags.logit_bias = {bad};
      CHECK_THROWS_AS(sampling_of(flags, Json::object()), Error);
    }
  }

  TEST_CASE("sizes for people are in binary units") {
    CHECK(bytes_text(512) == "512 B");
    CHECK(bytes_text(1536) == "1.5 KiB");
    CHECK(bytes_text(std::size_t{3} << 30) == "3.0 GiB");
  }
}
