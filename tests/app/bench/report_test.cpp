#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "app/bench/bench_plots.h"
#include "app/bench/lane_sweep.h"
#include "app/bench/report.h"

namespace bench_report_test {

using namespace hyb;
using namespace hyb::app;

namespace {

const BenchSetting setting = {.build_commit = "abc",
                              .cpu = "A \"CPU\", fast",
                              .gpu = "",
                              .cublaslt = "",
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

  TEST_CASE("a row says which matrix library long prompts ran in, or why in none") {
    BenchSetting on_card = setting;
    on_card.cublaslt = "/usr/lib/libcublasLt.so.13, version 13.1.0";
    CHECK(bench_row(on_card, measured())["cublaslt"] == on_card.cublaslt);
    CHECK(bench_row(setting, measured())["cublaslt"] == "");
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
    rows[0].test.graphs = value_of(words::graphs, "eager");
    rows[1].test.graphs = value_of(words::graphs, "full");
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
    CHECK(plot.lines[1].points[0].y == doctest::Approx(200));
    CHECK(depth_plot(std::span(rows).first(1)).lines[0].name == "pp100");
  }
}

using doctest::Approx;

namespace {

WorkloadSetting workload_setting() {
  WorkloadSetting all;
  all.model.model_filename = "m";
  all.metrics.percentages = {99};
  return all;
}

RequestRecord answered(double started_s, std::vector<double> token_s) {
  RequestRecord record;
  record.started_s = started_s;
  record.ended_s = token_s.back();
  record.token_s = std::move(token_s);
  record.prompt_tokens = 10;
  record.usage.reused_tokens = 4;
  record.usage.prefilled_tokens = 6;
  return record;
}

/// Two repetitions of two answers each: 4 tokens in 2 s, 4 tokens in 1 s.
RequestRow measured_row(const std::string& policy = "") {
  RequestRow row;
  row.test.prompts = 2;
  row.test.input_tokens = 10;
  row.test.output_tokens = 2;
  row.test.concurrency = 2;
  row.test.policy = policy;
  row.started = "2026-01-31T12:00:00Z";
  for (const double scale : {2.0, 1.0}) {
    Repetition one;
    one.records = {answered(0, {0.5 * scale, 1 * scale}), answered(0, {0.5 * scale, 1 * scale})};
    one.metrics = metrics_of(one.records, scale, workload_setting().metrics);
    one.events.flips = 3;
    one.steps.work = {.bytes = 3e9, .flops = 6e9};
    one.steps.steps = {{.work = {.bytes = 1e9, .flops = 6e9}},
                       {.work = {.bytes = 2e9, .flops = 0}}};
    one.steps.inside = std::chrono::milliseconds(500);
    row.repetitions.push_back(std::move(one));
  }
  row.ceilings = {.bytes_per_s = 4e9, .flops_per_s = 12e9};
  return row;
}

RequestRow refused_row() {
  RequestRow row;
  row.test.input_tokens = 99;
  row.status = "does not fit: needs 9 GiB";
  return row;
}

}  // namespace

TEST_SUITE("app/bench/request_report") {
  TEST_CASE("vLLM's keys are all there") {
    const Json row = request_row_json(workload_setting(), measured_row());
    for (const char* key : {"duration",
                            "completed",
                            "failed",
                            "total_input_tokens",
                            "total_output_tokens",
                            "request_throughput",
                            "request_goodput",
                            "output_throughput",
                            "total_token_throughput",
                            "max_output_tokens_per_s",
                            "max_concurrent_requests",
                            "input_lens",
                            "output_lens",
                            "ttfts",
                            "itls",
                            "errors",
                            "start_times",
                            "num_prompts",
                            "request_rate",
                            "burstiness",
                            "max_concurrency",
                            "model_id",
                            "date"}) {
      CAPTURE(key);
      CHECK(row.contains(key));
    }
    for (const char* figure : {"ttft", "tpot", "itl", "e2el"}) {
      for (const char* kind : {"mean_", "median_", "std_", "p99_"}) {
        const std::string key = std::string(kind) + figure + "_ms";
        CAPTURE(key);
        CHECK(row.contains(key));
      }
    }
  }

  TEST_CASE("repetitions are pooled: rates over all their time, latencies of all answers") {
    const Json row = request_row_json(workload_setting(), measured_row());
    CHECK(row["duration"] == Approx(3));
    CHECK(row["completed"] == 4);
    CHECK(row["output_throughput"] == Approx(8.0 / 3));
    CHECK(row["output_throughputs"] == Json({2.0, 4.0}));
    CHECK(row["output_throughput_sd"] == Approx(std::sqrt(2.0)));
    CHECK(row["mean_ttft_ms"] == Approx(750));
    CHECK(row["max_concurrent_requests"] == 2);
    CHECK(row["hit_rate"] == Approx(0.4));
    CHECK(row["flips"] == 6);
    CHECK(row["request_rate"] == "inf");
    CHECK(row["request_goodput"].is_null());
    CHECK(row["gpu_watts"].is_null());
    CHECK(row["bytes_per_s"] == Approx(2e9));
    CHECK(row["roofline_share"] == Approx(2 * (0.5 + 0.5) / 3));  // each step by its own bound
    CHECK(row["runner_share"] == Approx(1.0 / 3));
  }

  TEST_CASE("a case that failed is a row without rates, in every format") {
    const Json row = request_row_json(workload_setting(), refused_row());
    CHECK(row["status"] == "does not fit: needs 9 GiB");
    CHECK(row["output_throughput"].is_null());
    CHECK(row["completed"] == 0);
    const Json whole = request_row_json(workload_setting(), measured_row());
    CHECK(row.size() == whole.size());
    for (const auto& [key, value] : whole.items()) CHECK(row.contains(key));
    const std::vector<RequestRow> rows = {measured_row(), refused_row()};
    const Table table = request_table(workload_setting(), rows);
    for (const auto& cells : table.rows) CHECK(cells.size() == table.columns.size());
    CHECK(markdown_text(table).find("does not fit: needs 9 GiB") != std::string::npos);
    CHECK(load_plot(rows).lines.size() == 1);
  }

  TEST_CASE("vLLM's labels, verbatim") {
    WorkloadSetting goals = workload_setting();
    goals.metrics.goals.ttft_ms = 600;
    RequestRow row = measured_row();
    row.test.request_rate = 4;
    const std::string text = request_row_text(goals, row);
    for (const char* label : {"============ Serving Benchmark Result ============",
                              "Successful requests:                     4",
                              "Failed requests:                         0",
                              "Maximum request concurrency:             2",
                              "Request rate configured (RPS):           4.00",
                              "Benchmark duration (s):                  3.00",
                              "Total input tokens:                      40",
                              "Total generated tokens:                  8",
                              "Request throughput (req/s):              1.33",
                              "Request goodput (req/s):                 0.67",
                              "Output token throughput (tok/s):         2.67",
                              "Peak output token throughput (tok/s):    ",
                              "Peak concurrent requests:                2.00",
                              "Total token throughput (tok/s):          16.00",
                              "---------------Time to First Token----------------",
                              "Mean TTFT (ms):                          750.00",
                              "Median TTFT (ms):                        750.00",
                              "P99 TTFT (ms):                           -",
                              "-----Time per Output Token (excl. 1st token)------",
                              "---------------Inter-token Latency----------------",
                              "----------------End-to-end Latency----------------"}) {
      CAPTURE(label);
      CHECK(text.find(label) != std::string::npos);
    }
  }

  TEST_CASE("prompts and repetitions are counted apart, in text and table") {
    RequestRow row = measured_row();
    row.repetitions.push_back(row.repetitions.back());
    const std::string text = request_row_text(workload_setting(), row);
    CHECK(text.find("Successful requests:                     6") != std::string::npos);
    CHECK(text.find("Requests per repetition:                 2") != std::string::npos);
    CHECK(text.find("Repetitions (out tok/s):                 3: ") != std::string::npos);
    const Table table = request_table(workload_setting(), std::vector<RequestRow>{row});
    CHECK(table.columns[3].title == "prompts x reps");
    CHECK(table.rows[0][3] == "2 x 3");
    CHECK(table.rows[0][4] == "6/6");
  }

  TEST_CASE("every figure of a row that failed is a dash, its name and its reason stay") {
    const std::vector<RequestRow> rows = {refused_row()};
    const Table table = request_table(workload_setting(), rows);
    REQUIRE(table.rows.size() == 1);
    CHECK(table.rows[0].front() == "random 99+0");
    CHECK(table.rows[0].back() == "does not fit: needs 9 GiB");
    for (std::size_t i = 3; i + 1 < table.rows[0].size(); ++i) CHECK(table.rows[0][i] == "-");
    CHECK(request_table(workload_setting(), {}).columns.empty());
  }

  TEST_CASE("policies are compared with none of the same experiment") {
    RequestRow faster = measured_row("gd");
    for (Repetition& one : faster.repetitions) {
      for (RequestRecord& record : one.records) record.token_s.front() /= 2;
    }
    const std::vector<RequestRow> rows = {measured_row("none"), faster};
    const Table table = policy_table(rows);
    REQUIRE(table.rows.size() == 1);
    CHECK(table.rows[0][0] == "gd");
    CHECK(table.rows[0][3] == "375.0 (50 %)");
    CHECK(table.columns[0].title == "policy");
    CHECK(policy_table(std::vector<RequestRow>{faster}).rows.empty());
    CHECK(hit_rate_plot(rows).lines.size() == 2);
    CHECK(hit_rate_plot(rows).lines[0].points.back().y == Approx(40));
  }

  TEST_CASE("modes of graphs and conditions: compared with none of the same, and named") {
    std::vector<RequestRow> rows;
    for (const char* mode : {"eager", "full"}) {
      for (const Condition condition : {Condition::cold, Condition::warm}) {
        for (const char* policy : {"none", "gd"}) {
          rows.push_back(measured_row(policy));
          rows.back().test.graphs = value_of(words::graphs, mode);
          rows.back().test.condition = condition;
          if (rows.size() != 2) continue;
          for (Repetition& one : rows.back().repetitions) {
            for (RequestRecord& record : one.records) record.token_s.front() /= 2;
          }
        }
      }
    }
    const Table table = policy_table(rows);
    REQUIRE(table.rows.size() == 4);
    CHECK(table.columns[0].title == "prefixes");
    CHECK(table.columns[1].title == "graphs");
    CHECK(table.columns[2].title == "policy");
    CHECK(table.rows[2][0] == "cold");
    CHECK(table.rows[2][1] == "full");
    CHECK(table.rows[0][5] == "375.0 (50 %)");
    for (std::size_t i = 1; i < 4; ++i) CHECK(table.rows[i][5] == "750.0 (100 %)");
    for (const auto& row : table.rows) CHECK(row.size() == table.columns.size());
    CHECK(hit_rate_plot(rows).lines.size() == 8);
    REQUIRE(load_plot(rows).lines.size() == 8);
    CHECK(load_plot(rows).lines[0].name == "random 10+2, cold, none, eager");
    CHECK(load_plot(std::span(rows).first(4)).lines[0].name == "random 10+2, cold, none");
    rows.push_back(rows.front());
    rows.back().test.concurrency = 4;
    CHECK(hit_rate_plot(rows).lines.size() == 9);
  }

  TEST_CASE("the text names model and machine") {
    WorkloadSetting on_cpu = workload_setting();
    on_cpu.model.model_type = "granite q8";
    on_cpu.model.model_bytes = 1 << 20;
    on_cpu.model.parameters = 2'000'000;
    on_cpu.model.cpu = "A CPU";
    on_cpu.model.device = "cpu";
    on_cpu.model.isa = "avx2";
    on_cpu.model.threads = 2;
    on_cpu.model.kv_dtype = "fp8";
    const auto says = [&](const std::string& line) {
      return request_row_text(on_cpu, measured_row()).find(line) != std::string::npos;
    };
    CHECK(says("Model:                                   m, granite q8, 1.0 MiB, 2.00 M param"));
    CHECK(says("Machine:                                 A CPU, cpu avx2, 2 threads\n"));
    CHECK_FALSE(says("keys and values"));
    on_cpu.model.has_own_kv_dtype = true;
    CHECK(says("parameters, keys and values fp8\n"));
  }

  TEST_CASE("with a lane of prompts both lanes' threads are named, but in colocated rows") {
    WorkloadSetting lanes = workload_setting();
    lanes.model.threads = 4;
    lanes.model.prefill_threads = 1;
    RequestRow row = measured_row();
    for (const char* const which : {"", "disaggregated"}) {
      row.test.lanes = which;
      const std::string text = request_row_text(lanes, row);
      CHECK(text.find(", 4 threads: 3 for answers, 1 for prompts\n") != std::string::npos);
      CHECK(text.find("achieved figures are those of the lane of answers") != std::string::npos);
      const Json json = request_row_json(lanes, row);
      CHECK(json["lanes"] == "disaggregated");
      CHECK(json["n_threads"] == 4);
      CHECK(json["n_threads_prefill"] == 1);
    }
    row.test.lanes = "colocated";
    CHECK(request_row_text(lanes, row).find(", 4 threads\n") != std::string::npos);
    CHECK(request_row_json(lanes, row)["lanes"] == "colocated");
    CHECK(request_row_json(lanes, row)["n_threads_prefill"] == 0);
    CHECK(request_row_json(workload_setting(), measured_row())["lanes"] == "colocated");
    CHECK(request_row_text(workload_setting(), measured_row()).find("Lanes:") == std::string::npos);
  }

  TEST_CASE("a sweep of both ways: the plot has a line each, and the better one is named") {
    std::vector<RequestRow> rows;
    for (const std::int32_t at_once : {1, 2}) {
      for (const char* const which : {"colocated", "disaggregated"}) {
        rows.push_back(measured_row());
        rows.back().test.concurrency = at_once;
        rows.back().test.lanes = which;
      }
    }
    // TPOTs are 1 s and 0.5 s: 1 / 0.75 s; 8 tokens in 3 s.
    CHECK(request_row_json(workload_setting(), rows[0])["output_tokens_per_s_per_user"] ==
          Approx(4.0 / 3));
    // Two at once, in a lane of their own: tokens follow faster, all take longer.
    for (Repetition& one : rows[3].repetitions) {
      for (RequestRecord& record : one.records) record.token_s.front() *= 1.5;
      one.metrics.duration_s *= 2;
    }
    const Plot plot = lane_plot(rows);
    REQUIRE(plot.lines.size() == 2);
    CHECK(plot.lines[0].name == "colocated");
    CHECK(plot.lines[1].name == "disaggregated");
    REQUIRE(plot.lines[1].points.size() == 2);
    CHECK(plot.lines[1].points[0].label == "1");
    CHECK(plot.lines[1].points[1].label == "2");
    CHECK(plot.lines[0].points[1].x == Approx(4.0 / 3));
    CHECK(plot.lines[0].points[1].y == Approx(8.0 / 3));
    CHECK(plot.lines[1].points[1].x == Approx(8.0 / 3));
    CHECK(plot.lines[1].points[1].y == Approx(8.0 / 6));
    CHECK(lane_sweep_verdict(rows) ==
          "random 10+2, closed loop, 1 at once: tokens/s of the device: both 2.67; of a user: both "
          "1.33\n"
          "random 10+2, closed loop, 2 at once: tokens/s of the device: colocated 2.67 against "
          "1.33; of a user: disaggregated 2.67 against 1.33\n");
    // Rows without their counterpart, and those that failed, decide nothing.
    rows[1].status = "failed";
    rows[1].repetitions.clear();
    rows.pop_back();
    CHECK(lane_sweep_verdict(rows) == "");
    CHECK(lane_plot(rows).lines.size() == 1);
    for (RequestRow& row : rows) row.test.condition = Condition::warm;
    rows[0].test.condition = Condition::cold;
    CHECK(lane_plot(rows).lines[0].name == "colocated, random 10+2, cold");
  }
}

}  // namespace bench_report_test
