#include "app/bench/load_driver.h"

#include <doctest/doctest.h>

#include "app/bench/request_metrics.h"
#include "tests/app/bench/clock_runner.h"

namespace load_driver_test {

using namespace hyb;
using namespace hyb::app;
using namespace hyb::testing;
using doctest::Approx;

namespace {

struct Fixture {
  explicit Fixture(std::vector<ListSource::Item> items) : source(std::move(items)) {}

  LoadResult run(std::int32_t concurrency_max) {
    LoadDriverOptions options;
    options.concurrency_max = concurrency_max;
    return run_load(engine, source, timer, options);
  }

  FakeTimer timer;
  ClockRunner runner{timer};
  Engine engine{runner, nullptr, {.length_max = 100, .prefixes = {.enabled = false}, .now = [this] {
                                    return timer.now();
                                  }}};
  ListSource source;
};

}  // namespace

TEST_SUITE("app/bench/load_driver") {
  // A step takes 10 ms and 1 ms per token. Two requests at once:
  //   0 ms   a (10 of prompt) and b (20)   40 ms: a 1, b 1, b is answered, c is sent
  //   40 ms  a (1) and c (5)               56 ms: a 2, c 1
  //   56 ms  a (1) and c (1)               68 ms: a 3, c 2
  TEST_CASE("a closed loop: every figure is what it is by hand") {
    Fixture fixture(
        {{.prompt = 10, .answer = 3}, {.prompt = 20, .answer = 1}, {.prompt = 5, .answer = 2}});
    const LoadResult result = fixture.run(2);
    REQUIRE(result.records.size() == 3);
    CHECK(fixture.runner.steps == 3);
    const RequestMetrics all =
        metrics_of(result.records, result.duration_s,
                   {.percentages = {50, 99}, .goals = {.ttft_ms = 41, .tpot_ms = 13}});
    CHECK(all.duration_s == Approx(0.068));
    CHECK(all.completed == 3);
    CHECK(all.failed == 0);
    CHECK(all.input_tokens == 35);
    CHECK(all.output_tokens == 6);
    CHECK(all.request_throughput == Approx(3 / 0.068));
    CHECK(all.request_goodput == Approx(2 / 0.068));  // a: 14 ms per token
    CHECK(all.output_throughput == Approx(6 / 0.068));
    CHECK(all.total_token_throughput == Approx(41 / 0.068));
    CHECK(all.output_tokens_per_s_max == Approx(6 / 0.068));  // no second is whole: the mean
    CHECK(all.requests_at_once_max == 2);
    // a 40, b 40, c 56 - 40
    CHECK(all.ttft_ms.mean == Approx(32));
    CHECK(all.ttft_ms.median == Approx(40));
    CHECK(all.ttft_ms.deviation == Approx(11.3137085));
    CHECK(all.ttft_ms.percentiles[1] == Approx(40));
    // a (68 - 40) / 2, c 68 - 56; b has one token and no TPOT
    CHECK(all.tpot_ms.mean == Approx(13));
    CHECK(all.tpot_ms.median == Approx(13));
    CHECK(all.tpot_ms.percentiles[1] == Approx(13.98));
    // a 16, 12; c 12
    CHECK(all.itl_ms.mean == Approx(40.0 / 3));
    CHECK(all.itl_ms.median == Approx(12));
    CHECK(all.itl_ms.percentiles[1] == Approx(15.92));
    // a 68, b 40, c 28
    CHECK(all.e2el_ms.mean == Approx(136.0 / 3));
    CHECK(all.e2el_ms.median == Approx(40));
    CHECK(all.e2el_ms.percentiles[1] == Approx(67.44));
    CHECK(all.client_queue_ms.mean == Approx(40.0 / 3));  // c came at 0 and was held back
    CHECK(all.engine_queue_ms.mean == 0);
    CHECK(all.prefilled_tokens == 35);
    CHECK(all.reused_tokens == 0);
  }

  // 0: a (10) -> 20; a's second token 31, a's third 42.
  // b came at 25 while a step ran: 31: a and b (4) in one step -> 46 ...
  TEST_CASE("an open loop: a request that comes during a step counts from when it came") {
    Fixture fixture({{.prompt = 10, .answer = 3}, {.prompt = 4, .answer = 1, .due_s = 0.025}});
    const LoadResult result = fixture.run(0);
    const RequestRecord& b = result.records[1];
    CHECK(b.due_s == Approx(0.025));
    CHECK(b.started_s == Approx(0.025));
    CHECK(b.token_s.front() == Approx(0.046));
    CHECK(b.ttft_s() == Approx(0.021));
    CHECK(b.client_queue_s() == 0);
  }

  TEST_CASE("an open loop with a limit: being held back is not TTFT but client queue") {
    Fixture fixture({{.prompt = 10, .answer = 3}, {.prompt = 4, .answer = 1, .due_s = 0.025}});
    const LoadResult result = fixture.run(1);
    const RequestRecord& b = result.records[1];
    CHECK(b.started_s == Approx(0.042));
    CHECK(b.client_queue_s() == Approx(0.017));
    CHECK(b.ttft_s() == Approx(0.014));
  }

  TEST_CASE("the engine sleeps until the next request comes") {
    Fixture fixture({{.prompt = 10, .answer = 1}, {.prompt = 10, .answer = 1, .due_s = 5}});
    const LoadResult result = fixture.run(0);
    CHECK(result.records[1].started_s == Approx(5));
    CHECK(result.duration_s == Approx(5.02));
    CHECK(metrics_of(result.records, result.duration_s, {}).requests_at_once_max == 1);
    CHECK(metrics_of(result.records, result.duration_s, {}).output_tokens_per_s_max == 1);
  }

  TEST_CASE("a next turn waits for the answer before it") {
    Fixture fixture({{.prompt = 10, .answer = 3},
                     {.prompt = 12, .answer = 1, .due_s = 0.001, .follows = 0},
                     {.prompt = 5, .answer = 1, .due_s = 0.002}});
    const LoadResult result = fixture.run(0);
    CHECK(fixture.source.answers == std::vector<std::size_t>{2, 0, 1});
    CHECK(result.records[1].due_s == Approx(result.records[0].ended_s));
    CHECK(result.records[1].started_s == Approx(result.records[0].ended_s));
  }

  TEST_CASE("what is refused and what fails are records, and the others go on") {
    Fixture fixture({{.prompt = 200, .answer = 1}, {.prompt = 5, .answer = 2}});
    const LoadResult refused = fixture.run(0);
    REQUIRE(refused.records.size() == 2);
    CHECK(refused.records[0].error.find("200") != std::string::npos);
    CHECK(refused.records[1].is_answered());
    const RequestMetrics metrics = metrics_of(refused.records, refused.duration_s, {});
    CHECK(metrics.completed == 1);
    CHECK(metrics.failed == 1);
    CHECK(metrics.input_tokens == 5);

    fixture.runner.is_finite = false;
    const LoadResult failed = fixture.run(0);
    CHECK(failed.records[1].error.find("NaN") != std::string::npos);
    CHECK_FALSE(failed.records[1].is_answered());
    CHECK(metrics_of(failed.records, failed.duration_s, {}).ttft_ms.mean == 0);
    CHECK(fixture.engine.idle());
  }

  TEST_CASE("stopped: what ran is cancelled and is no record") {
    Fixture fixture(
        {{.prompt = 5, .answer = 1}, {.prompt = 5, .answer = 50}, {.prompt = 5, .answer = 1}});
    LoadDriverOptions options;
    options.concurrency_max = 2;
    options.is_stopped = [&] { return fixture.runner.steps == 1; };
    const LoadResult result = run_load(fixture.engine, fixture.source, fixture.timer, options);
    CHECK(result.is_interrupted);
    CHECK(result.records.size() == 1);
    CHECK(fixture.engine.idle());
  }
}

}  // namespace load_driver_test
