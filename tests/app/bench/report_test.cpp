#include "app/bench/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench/bench_plots.h"
#include "app/bench/row_text.h"

using namespace hyb;
using namespace hyb::app;

namespace {

const BenchSetting setting = {.build_commit = "abc",
                              .cpu = "A \"CPU\", fast",
                              .gpu = "",
                              .device = "cpu",
                              .isa = "avx2",
                              .model_filename = "m",
                              .model_type = "granite BF16",
                              .model_bytes = 1 << 20,
                              .parameters = 1'500'000'000,
                              .threads = 2,
                              .chunk_tokens = 512,
                              .kv_dtype = "bf16"};

/// 100 tokens in 1 s and in 2 s, 3 GB and 6 GFLOP each.
Measurement measured() {
  return {.test = {.prompt = 100},
          .status = "ok",
          .started = "2026-01-31T12:00:00Z",
          .samples_ns = {1'000'000'000, 2'000'000'000},
          .work = {.bytes = 3e9, .flops = 6e9},
          .ceilings = {.bytes_per_s = 4e9, .flops_per_s = 16e9}};
}

Measurement refused() {
  Measurement row = measured();
  row.samples_ns.clear();
  row.status = "does not fit: needs 9 GiB";
  row.ceilings = {};
  return row;
}

}  // namespace

TEST_SUITE("app/bench/report") {
  TEST_CASE("a row: all rates are means over the repetitions") {
    const Json row = bench_row(setting, measured());
    CHECK(row["avg_ns"] == 1'500'000'000);
    CHECK(row["stddev_ns"] == 707'106'781);
    CHECK(row["avg_ts"] == doctest::Approx(75.0));
    CHECK(row["bytes_per_s"] == doctest::Approx(2.25e9));
    CHECK(row["probe_bytes_per_s"] == 4e9);
    CHECK(row["flops_per_s"] == doctest::Approx(4.5e9));
    CHECK(row["samples_ts"] == Json({100.0, 50.0}));
    CHECK(row["status"] == "ok");
  }

  TEST_CASE("llama-bench's keys are all there") {
    const Json row = bench_row(setting, measured());
    for (const char* key :
         {"build_commit",   "cpu_info",         "gpu_info",       "backends",
          "model_filename", "model_type",       "model_size",     "n_batch",
          "n_ubatch",       "n_threads",        "model_n_params", "type_k",
          "type_v",         "n_prompt",         "n_gen",          "n_depth",
          "test_time",      "avg_ns",           "stddev_ns",      "avg_ts",
          "stddev_ts",      "samples_ns",       "samples_ts",     "batch",
          "depth",          "device",           "bytes_per_s",    "probe_bytes_per_s",
          "flops_per_s",    "probe_flops_per_s"}) {
      CAPTURE(key);
      CHECK(row.contains(key));
    }
  }

  TEST_CASE("a case that was refused is a row without rates") {
    const Json row = bench_row(setting, refused());
    CHECK(row["status"] == "does not fit: needs 9 GiB");
    CHECK(row["bytes_per_s"].is_null());
    CHECK(row["probe_flops_per_s"].is_null());
    CHECK(row["samples_ns"].empty());
    CHECK(row["n_prompt"] == 100);
  }

  TEST_CASE("the table: batch and status columns only where they say something") {
    const auto has = [](const Table& table, const std::string& title) {
      return std::any_of(table.columns.begin(), table.columns.end(),
                         [&](const Column& column) { return column.title == title; });
    };
    std::vector<Measurement> rows = {measured()};
    Table table = bench_table(setting, rows);
    CHECK(!has(table, "batch"));
    CHECK(!has(table, "status"));
    const std::string text = markdown_text(table);
    CHECK(text.find("75.00 ± 35.36") != std::string::npos);
    CHECK(text.find("56.2 %") != std::string::npos);
    CHECK(text.find("28.1 %") != std::string::npos);

    rows.push_back(refused());
    rows.back().test.batch = 8;
    table = bench_table(setting, rows);
    CHECK(has(table, "batch"));
    CHECK(has(table, "status"));
    for (const auto& row : table.rows) CHECK(row.size() == table.columns.size());
    CHECK(markdown_text(table).find("does not fit: needs 9 GiB") != std::string::npos);
  }

  TEST_CASE("modes of graphs and a type of keys and values of its own have columns and lines") {
    std::vector<Measurement> rows = {measured(), measured()};
    rows[0].test.graphs = "eager";
    rows[1].test.graphs = "full";
    rows[1].samples_ns = {500'000'000};
    BenchSetting fp8 = setting;
    fp8.kv_dtype = "fp8";
    fp8.has_own_kv_dtype = true;
    const Table table = bench_table(fp8, rows);
    CHECK(table.columns[5].title == "type_kv");
    CHECK(table.columns[6].title == "graphs");
    CHECK(table.columns[7].title == "test");
    CHECK(table.rows[0][5] == "fp8");
    CHECK(table.rows[0][6] == "eager");
    CHECK(table.rows[1][6] == "full");
    CHECK(table.rows[1][7] == "pp100");
    for (const auto& row : table.rows) CHECK(row.size() == table.columns.size());
    const Plot plot = depth_plot(rows);
    REQUIRE(plot.lines.size() == 2);
    CHECK(plot.lines[0].name == "pp100, eager");
    CHECK(plot.lines[1].name == "pp100, full");
    CHECK(plot.lines[1].points[0].second == doctest::Approx(200));
    CHECK(depth_plot(std::span(rows).first(1)).lines[0].name == "pp100");
  }

  TEST_CASE("CSV: as many cells as titles, quotes doubled") {
    const std::string header = csv_header(bench_row(setting, measured()));
    const std::string line = csv_line(bench_row(setting, measured()));
    CHECK(line.find("\"A \"\"CPU\"\", fast\"") != std::string::npos);
    const auto commas = [](const std::string& text) {
      bool quoted = false;
      int count = 0;
      for (const char letter : text) {
        if (letter == '"') quoted = !quoted;
        count += letter == ',' && !quoted;
      }
      return count;
    };
    CHECK(commas(header) == commas(line));
    CHECK(header.find("samples") == std::string::npos);
  }
}
