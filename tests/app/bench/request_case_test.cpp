#include "app/bench/request_case.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/error.h"

using namespace hyb;
using namespace hyb::app;

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
    grid.graphs = {"eager", "full"};
    const std::vector<RequestCase> modes = cases_of(base, grid);
    REQUIRE(modes.size() == 24);
    CHECK(modes[2].graphs == "eager");
    CHECK(modes[3].graphs == "full");
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
