#include "app/bench/bench_case.h"

#include <doctest/doctest.h>

using namespace hyb::app;

namespace {

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
    const std::vector<BenchCase> cases = cases_of({.prompts = {0, 512},
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
    const std::vector<BenchCase> cases = cases_of({.prompts = {512},
                                                   .generations = {128},
                                                   .depths = {0},
                                                   .batches = {1},
                                                   .pairs = {},
                                                   .graphs = {"eager", "full+piecewise"}});
    REQUIRE(cases.size() == 4);
    CHECK(cases[1] == BenchCase{.prompt = 512, .graphs = "full+piecewise"});
    CHECK(cases[2] == BenchCase{.generate = 128, .graphs = "eager"});
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
