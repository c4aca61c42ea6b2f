#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/replay/report.h"
#include "app/replay/shape.h"

namespace replay_report_test {

using namespace hyb;
using namespace hyb::app;

namespace {

/// Four requests: hit rates 0, 0.5, 0.5 and 1.
ReplayRun small_run() {
  ReplayRun run = {
      .options = {.kind = PolicyKind::gd, .budget_bytes = 1'000'000'000},
      .requests = {{100, {0, 0}}, {200, {100, 150}}, {1000, {500, 500}}, {2000, {2000, 2000}}},
      .prompt_tokens = 3300,
      .reused_tokens = 2600,
      .matched_tokens = 2650,
      .flops_total = 8,
      .flops_saved = 6,
      .counters = {}};
  run.counters.snapshots_created = 10;
  run.counters.snapshots_reused = 4;
  run.counters.kv_tokens_created = 1000;
  run.counters.kv_tokens_reused = 250;
  run.counters.kv_bytes = 300'000'000;
  run.counters.snapshot_bytes = 500'000'000;
  return run;
}

Json json_of(Analysis analysis) {
  const ReplayRun run = small_run();
  return analysis_json(analysis, marconi_shape({}, 1e12), std::span(&run, 1));
}

}  // namespace

TEST_SUITE("app/replay/analysis") {
  TEST_CASE("reuse") {
    const Json row = json_of(Analysis::reuse)[0];
    CHECK(row["snapshots_reused_share"] == 0.4);
    CHECK(row["kv_reused_share"] == 0.25);
    CHECK(row["lost_token_share"].get<double>() == doctest::Approx(50.0 / 3300));
  }

  TEST_CASE("bytes: the paper's example") {
    for (const Json& row : json_of(Analysis::bytes)) {
      if (row["tokens"] != 10000) continue;
      const double bytes = row["state_per_16_bytes"];
      CHECK(bytes / 1e9 == doctest::Approx(17.4).epsilon(0.002));
      CHECK(bytes / row["transformer_bytes"].get<double>() == doctest::Approx(3.3).epsilon(0.01));
      CHECK(row["conv_share_of_state"].get<double>() == doctest::Approx(0.0606).epsilon(0.001));
      return;
    }
    FAIL("no row of 10000 tokens");
  }

  TEST_CASE("efficiency grows with the length, most where the state weighs most") {
    const Json rows = json_of(Analysis::efficiency);
    for (std::size_t i = 1; i < rows.size(); ++i) {
      CHECK(rows[i]["flops_per_byte_exact"] > rows[i - 1]["flops_per_byte_exact"]);
      CHECK(rows[i]["flops_per_byte_int8"] >= rows[i]["flops_per_byte_exact"]);
      CHECK(rows[i]["flops_per_byte_kv"] >= rows[i]["flops_per_byte_int8"]);
    }
  }

  TEST_CASE("bins hold every request once") {
    const Json rows = json_of(Analysis::bins);
    REQUIRE(rows.size() == 3);  // up to 511, to 1023, to 2047
    CHECK(rows[0]["requests"] == 2);
    CHECK(rows[0]["token_hit_rate"].get<double>() == doctest::Approx(1.0 / 3));
    CHECK(rows[1]["requests"] == 1);
    CHECK(rows[2]["token_hit_rate"] == 1.0);
    CHECK(rows[2]["tokens_last"] == 2047);
  }

  TEST_CASE("quantiles") {
    const Json rows = json_of(Analysis::quantiles);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["p50"] == 0.5);
    CHECK(rows[0]["p25"] == 0.375);
    CHECK(rows[0]["p95"].get<double>() == doctest::Approx(0.925));
    CHECK(rows[1]["of"] == "prefill_seconds");
    CHECK(rows[1]["p5"] < rows[1]["p95"]);
  }

  TEST_CASE("rows of runs") {
    const ReplayRun run = small_run();
    const Json row = runs_json(std::span(&run, 1))[0];
    CHECK(row["policy"] == "gd");
    CHECK(row["ratio"].is_null());
    CHECK(row["snapshots"] == "exact");
    CHECK(row["token_hit_rate"].get<double>() == doctest::Approx(2600.0 / 3300));
    CHECK(row["bytes_by_owner"]["free"] == 200'000'000);
    CHECK(runs_table(std::span(&run, 1)).rows[0][2] == "78.8");
  }
}

}  // namespace replay_report_test
