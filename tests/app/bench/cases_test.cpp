#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "app/bench/cases.h"
#include "core/base/error.h"

namespace cases_test {

using namespace hyb::app;

namespace {

constexpr hyb::models::GraphOptions everything, eager = {.decode = false, .mixed = false};

std::int64_t tokens_of(const std::vector<BenchStep>& steps) {
  std::int64_t tokens = 0;
  for (const BenchStep& step : steps) tokens += step.shape.sequences * step.shape.tokens;
  return tokens;
}

}  // namespace

TEST_SUITE("app/bench/bench_case") {
  TEST_CASE("names as llama-bench gives them") {
    CHECK(BenchCase{.prompt = 512}.name() == "pp512");
    CHECK(BenchCase{.generate = 128}.name() == "tg128");
    CHECK(BenchCase{.prompt = 64, .generate = 16}.name() == "pp64+tg16");
    CHECK(BenchCase{.generate = 128, .depth = 4096}.name() == "tg128 @ d4096");
  }

  TEST_CASE("the grid: all combinations, zeros skipped, batches only where tokens are generated") {
    const std::vector<BenchCase> cases = cases_of(BenchGrid{.prompts = {0, 512},
                                                            .generations = {128, 0},
                                                            .depths = {0, 1024},
                                                            .batches = {1, 8},
                                                            .pairs = {{64, 16}}});
    REQUIRE(cases.size() == 2 * (1 + 2 * 2));
    CHECK(cases[0] == BenchCase{.prompt = 512});
    CHECK(cases[1] == BenchCase{.generate = 128});
    CHECK(cases[2] == BenchCase{.prompt = 64, .generate = 16});
    CHECK(cases[3] == BenchCase{.generate = 128, .batch = 8});
    CHECK(cases[9] == BenchCase{.prompt = 64, .generate = 16, .depth = 1024, .batch = 8});
  }

  TEST_CASE("the grid: every test in every mode, modes fastest") {
    const std::vector<BenchCase> cases = cases_of(BenchGrid{.prompts = {512},
                                                            .generations = {128},
                                                            .depths = {0},
                                                            .batches = {1},
                                                            .pairs = {},
                                                            .graphs = {eager, everything}});
    REQUIRE(cases.size() == 4);
    CHECK(cases[1] == BenchCase{.prompt = 512, .graphs = everything});
    CHECK(cases[2] == BenchCase{.generate = 128, .graphs = eager});
  }

  TEST_CASE("steps run every token once, in order, in chunks") {
    const BenchCase test = {.prompt = 1000, .generate = 7, .depth = 600, .batch = 3};
    CHECK(tokens_of(depth_steps(test, 0, 0, 512)) == 600);
    CHECK(tokens_of(depth_steps(test, 2, 250, 100)) == 350);
    CHECK(depth_steps(test, 2, 250, 100).front().shape.position == 250);
    CHECK(depth_steps(test, 2, 250, 100).front().first == 2);
    CHECK(depth_steps(test, 0, 600, 512).empty());
    const std::vector<BenchStep> steps = timed_steps(test, 512);
    CHECK(tokens_of(steps) == test.tokens());
    REQUIRE(steps.size() == 3 * 2 + 7);
    std::vector<std::int64_t> positions(3, 600);
    for (const BenchStep& step : steps) {
      CHECK(step.shape.tokens <= 512);
      for (std::int64_t i = 0; i < step.shape.sequences; ++i) {
        std::int64_t& position = positions[static_cast<std::size_t>(step.first + i)];
        CHECK(step.shape.position == position);
        position += step.shape.tokens;
      }
    }
    CHECK(positions == std::vector<std::int64_t>(3, test.length()));
  }

  TEST_CASE("logits: none on the way to the depth, one row per prompt, one per generated token") {
    const BenchCase test = {.prompt = 1000, .generate = 7, .depth = 600, .batch = 3};
    for (const BenchStep& step : depth_steps(test, 0, 0, 512)) CHECK(step.shape.rows == 0);
    std::int64_t rows = 0;
    for (const BenchStep& step : timed_steps(test, 512)) {
      rows += step.shape.rows * step.shape.sequences;
    }
    CHECK(rows == 3 + 3 * 7);
  }
}

using namespace hyb;

TEST_SUITE("app/bench/request_case") {
  TEST_CASE("the grid: all combinations, conditions fastest, empty lists leave the field") {
    RequestCase base;
    base.output_tokens = 7;
    RequestGrid grid;
    grid.input_tokens = {64, 128};
    grid.concurrencies = {1, 4};
    grid.conditions = {Condition::cold, Condition::warm, Condition::turn_2};
    const std::vector<RequestCase> cases = cases_of(base, grid);
    REQUIRE(cases.size() == 12);
    CHECK(cases[1].condition == Condition::warm);
    CHECK(cases[3].concurrency == 4);
    CHECK(cases[3].input_tokens == 64);
    CHECK(cases[11].input_tokens == 128);
    for (const RequestCase& one : cases) CHECK(one.output_tokens == 7);
    grid.graphs = {eager, everything};
    const std::vector<RequestCase> modes = cases_of(base, grid);
    REQUIRE(modes.size() == 24);
    CHECK(modes[2].graphs == eager);
    CHECK(modes[3].graphs == everything);
    CHECK(modes[3].concurrency == 1);
  }

  TEST_CASE("closed and open loops are named as what they are") {
    RequestCase test;
    test.input_tokens = 1024;
    test.output_tokens = 128;
    test.concurrency = 8;
    CHECK(test.workload() == "random 1024+128");
    CHECK(test.experiment() == "closed loop, 8 at once");
    test.request_rate = 2.5;
    CHECK(test.experiment() == "open loop, 2.5/s, 8 at once");
    test.concurrency = 0;
    CHECK(test.experiment() == "open loop, 2.5/s");
    test.request_rate = INFINITY;
    CHECK(test.experiment() == "open loop, all at once");
    CHECK_FALSE(test.is_closed_loop());
  }

  TEST_CASE("names and numbers that are none") {
    CHECK(parse_dataset("generated-shared-prefix") == Dataset::generated_shared_prefix);
    CHECK(name_of(Dataset::send_one) == "send_one");
    CHECK_THROWS_AS(parse_dataset("sharegpt"), Error);
    CHECK(parse_conditions({"turn-2", "cold"}) ==
          std::vector<Condition>{Condition::turn_2, Condition::cold});
    CHECK_THROWS_AS(parse_conditions({"hot"}), Error);
    CHECK(parse_rates("0.5,inf") == std::vector<double>{0.5, INFINITY});
    for (const char* text : {"", "0", "-1", "x", "1,", "nan", "1x"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_rates(text), Error);
    }
  }
}

namespace {

std::vector<std::int32_t> counts(const std::string& text) {
  return parse_counts(std::array{text}, "-p");
}

std::string refusal(const std::string& text) {
  try {
    counts(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

using Counts = std::vector<std::int32_t>;

}  // namespace

TEST_SUITE("app/bench/counts") {
  TEST_CASE("lists and ranges") {
    CHECK(counts("512") == Counts{512});
    CHECK(counts("0") == Counts{0});
    CHECK(counts("128,512,1") == Counts{128, 512, 1});
    CHECK(counts("3-6") == Counts{3, 4, 5, 6});
    CHECK(counts("256-1024+256") == Counts{256, 512, 768, 1024});
    CHECK(counts("256-1023+256") == Counts{256, 512, 768});
    CHECK(counts("64-1024*4") == Counts{64, 256, 1024});
    CHECK(counts("7,1-4*2,9") == Counts{7, 1, 2, 4, 9});
    CHECK(counts("5-5") == Counts{5});
    CHECK(parse_counts(std::array<std::string, 2>{"1,2", "3"}, "-p") == Counts{1, 2, 3});
  }

  TEST_CASE("everything else is refused with the option and the text") {
    for (const char* text :
         {"", ",", "5,", "a", "-5", "1 ", "1.5", "4-2", "1-4+0", "1-4*1", "0-4*2", "1-4+", "1-4x2",
          "1--4", "1-4+1+1", "16777217", "99999999999999999999", "1-2000"}) {
      CAPTURE(text);
      CHECK(refusal(text).starts_with("-p: "));
    }
    CHECK(refusal("1,zz,3").find("'zz'") != std::string::npos);
  }

  TEST_CASE("pairs") {
    CHECK(parse_pair("512,128", "-pg").first == 512);
    CHECK(parse_pair("512,128", "-pg").second == 128);
    for (const char* text : {"", "512", "512,", ",1", "0,1", "1,0", "1,2,3", "a,b", "1;2"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_pair(text, "-pg"), Error);
    }
  }
}

}  // namespace cases_test
