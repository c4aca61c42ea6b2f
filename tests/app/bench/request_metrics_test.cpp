#include "app/bench/request_metrics.h"

#include <doctest/doctest.h>

#include "core/base/error.h"

namespace request_metrics_test {

using namespace hyb;
using namespace hyb::app;
using doctest::Approx;

namespace {

RequestRecord answered(double started_s, std::vector<double> token_s) {
  RequestRecord record;
  record.started_s = started_s;
  record.ended_s = token_s.back();
  record.token_s = std::move(token_s);
  return record;
}

}  // namespace

TEST_SUITE("app/bench/request_metrics") {
  TEST_CASE("the best second begins when the first request is sent") {
    // Seconds since 0.5: [0.5, 1.5) has 2 tokens, [1.5, 2.5) has 3, [2.5, 3.5) has 1.
    const std::vector<RequestRecord> records = {answered(0.5, {1.0, 1.4, 1.6}),
                                                answered(1.0, {1.7, 2.4, 2.6})};
    CHECK(metrics_of(records, 3, {}).output_tokens_per_s_max == 3);
    // All of them in half a second are more in a second than there are.
    CHECK(metrics_of(records, 0.5, {}).output_tokens_per_s_max == 12);
  }

  TEST_CASE("requests that touch without overlapping are not at once") {
    const std::vector<RequestRecord> records = {answered(0, {1}), answered(1, {2}),
                                                answered(1.5, {3})};
    CHECK(metrics_of(records, 3, {}).requests_at_once_max == 2);
  }

  TEST_CASE("goals: an answer of one token keeps any TPOT") {
    const std::vector<RequestRecord> records = {answered(0, {0.1}), answered(0, {0.1, 0.3}),
                                                answered(0, {0.3, 0.35})};
    const auto good = [&](const ServiceGoals& goals) {
      return metrics_of(records, 1, {.percentages = {}, .goals = goals}).request_goodput;
    };
    CHECK(good({}) == 3);
    CHECK(good({.tpot_ms = 100}) == 2);
    CHECK(good({.ttft_ms = 200, .tpot_ms = 100}) == 1);
    CHECK(good({.e2el_ms = 320}) == 2);
  }

  TEST_CASE("nothing was answered: all figures are 0") {
    RequestRecord failed;
    failed.error = "no";
    const RequestMetrics none = metrics_of(std::vector{failed}, 0, {});
    CHECK(none.failed == 1);
    CHECK(none.output_throughput == 0);
    CHECK(none.output_tokens_per_s_max == 0);
    CHECK(none.ttft_ms.mean == 0);
    CHECK(none.ttft_ms.percentiles == std::vector<double>(3, 0));
    CHECK(none.hit_rate() == 0);
  }

  TEST_CASE("options") {
    const ServiceGoals goals = parse_goals(std::vector<std::string>{"ttft:100", "e2el:2.5"});
    CHECK(goals.ttft_ms == 100);
    CHECK(goals.e2el_ms == 2.5);
    CHECK_FALSE(goals.tpot_ms);
    for (const char* text : {"ttft", "itl:5", "ttft:", "ttft:-1", "ttft:1x", ""}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_goals(std::vector<std::string>{text}), Error);
    }
    CHECK(parse_percentages("50,99.9") == std::vector<double>{50, 99.9});
    for (const char* text : {"", "101", "5,", "-1", "a"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_percentages(text), Error);
    }
  }
}

}  // namespace request_metrics_test
