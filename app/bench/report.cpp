#include "app/bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/card_watch.h"
#include "app/bench/statistics.h"
#include "app/options.h"
#include "app/ui/process.h"
#include "app/ui/table.h"

namespace hyb::app {
namespace {

/// `text` between `quote`s, those inside it doubled.
std::string quoted(const std::string& text, char quote) {
  std::string all(1, quote);
  for (const char letter : text) {
    if (letter == quote) all += quote;
    all += letter;
  }
  return all + quote;
}

/// What `cell` says of every single value, with commas between.
template <typename Cell>
std::string joined(const Json& row, Cell&& cell) {
  std::string line;
  bool is_first = true;
  for (const auto& [key, value] : row.items()) {
    if (value.is_structured()) continue;
    if (!is_first) line += ',';
    line += cell(key, value);
    is_first = false;
  }
  return line;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : to_text(value);
}

std::string csv_cell(const std::string&, const Json& value) {
  return value.is_null() ? "" : quoted(text_of(value), '"');
}

std::string sql_cell(const std::string&, const Json& value) {
  if (value.is_null()) return "NULL";
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.is_number() ? to_text(value) : quoted(text_of(value), '\'');
}

std::string sql_column(const std::string& key, const Json& value) {
  const bool is_integer = value.is_number_integer() || value.is_boolean();
  return fmt::format("\n  {} {}", key,
                     is_integer          ? "INTEGER"
                     : value.is_string() ? "TEXT"
                                         : "REAL");
}

}  // namespace

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

std::string csv_header(const Json& row) {
  return joined(row, [](const std::string& key, const Json&) { return key; });
}

std::string csv_line(const Json& row) { return joined(row, csv_cell); }

std::string sql_header(const Json& row, std::string_view table) {
  return fmt::format("CREATE TABLE IF NOT EXISTS {} ({}\n);", table, joined(row, sql_column));
}

std::string sql_line(const Json& row, std::string_view table) {
  return fmt::format("INSERT INTO {} ({}) VALUES ({});", table, csv_header(row),
                     joined(row, sql_cell));
}

void RowOutput::add(Json row) {
  const bool is_first = rows_.empty();
  if (format_ == "csv") {
    if (is_first) write_stdout(csv_header(row) + '\n');
    write_stdout(csv_line(row) + '\n');
  } else if (format_ == "jsonl") {
    write_stdout(to_text(row) + '\n');
  } else if (format_ == "sql") {
    if (is_first) write_stdout(sql_header(row, table_) + '\n');
    write_stdout(sql_line(row, table_) + '\n');
  }
  rows_.push_back(std::move(row));
}

void RowOutput::finish() const {
  if (format_ == "json") write_stdout(pretty_json(rows_));
}

namespace {

/// Of the nanoseconds of a row, of the tokens per second of its repetitions, and of the rates at
/// which it did its work.
struct Figures {
  Statistics nanoseconds, tokens_per_s;
  double bytes_per_s = 0, flops_per_s = 0;
  std::vector<double> samples_tokens_per_s;
};

Figures figures_of(const Measurement& row) {
  Figures figures;
  std::vector<double> times;
  for (const std::int64_t elapsed : row.samples_ns) {
    times.push_back(static_cast<double>(elapsed));
    figures.samples_tokens_per_s.push_back(static_cast<double>(row.test.tokens()) * 1e9 /
                                           static_cast<double>(elapsed));
  }
  figures.nanoseconds = statistics_of(times);
  figures.tokens_per_s = statistics_of(figures.samples_tokens_per_s);
  const double per_token = figures.tokens_per_s.mean / static_cast<double>(row.test.tokens());
  if (row.is_measured()) {
    figures.bytes_per_s = row.work.bytes * per_token;
    figures.flops_per_s = row.work.flops * per_token;
  }
  return figures;
}

std::string share_text(double value, double whole) {
  return value > 0 && whole > 0 ? fmt::format("{:.1f} %", 100 * value / whole) : "-";
}

/// Rates of a row, and their shares of what was probed.
std::vector<std::string> rate_cells(const Measurement& row) {
  if (!row.is_measured()) return std::vector<std::string>(5, "-");
  const Figures figures = figures_of(row);
  return {fmt::format("{:.2f} ± {:.2f}", figures.tokens_per_s.mean, figures.tokens_per_s.deviation),
          fmt::format("{:.2f}", figures.bytes_per_s / 1e9),
          share_text(figures.bytes_per_s, row.ceilings.bytes_per_s),
          fmt::format("{:.1f}", figures.flops_per_s / 1e9),
          share_text(figures.flops_per_s, row.ceilings.flops_per_s)};
}

/// Columns that only some tables have.
struct Shown {
  bool kv, batch, graphs, status;
};

std::vector<Column> columns_of(const Shown& shown) {
  std::vector<Column> columns = {{"model"},
                                 {"size", Align::right},
                                 {"params", Align::right},
                                 {"backend"},
                                 {"threads", Align::right}};
  if (shown.kv) columns.push_back({"type_kv"});
  if (shown.batch) columns.push_back({"batch", Align::right});
  if (shown.graphs) columns.push_back({"graphs"});
  for (const char* title : {"test", "t/s", "GB/s", "of read probe", "GFLOP/s", "of FLOP probe"}) {
    columns.push_back({title, Align::right});
  }
  if (shown.status) columns.push_back({"status"});
  return columns;
}

std::vector<std::string> cells_of(const BenchSetting& setting, const Measurement& row,
                                  const Shown& shown) {
  std::vector<std::string> cells = {
      setting.model_type, bytes_text(setting.model_bytes), parameters_text(setting.parameters),
      fmt::format("{} {}", setting.device, setting.isa), std::to_string(setting.threads)};
  if (shown.kv) cells.push_back(setting.kv_dtype);
  if (shown.batch) cells.push_back(std::to_string(row.test.batch));
  if (shown.graphs) cells.push_back(row.test.graphs);
  cells.push_back(row.test.name());
  for (std::string& cell : rate_cells(row)) cells.push_back(std::move(cell));
  if (shown.status) cells.push_back(row.status);
  return cells;
}

}  // namespace

Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows) {
  const auto has = [&](auto&& holds) { return std::any_of(rows.begin(), rows.end(), holds); };
  const Shown shown = {.kv = setting.has_own_kv_dtype,
                       .batch = has([](const Measurement& row) { return row.test.batch > 1; }),
                       .graphs = varies_in_graphs(rows),
                       .status = has([](const Measurement& row) { return row.status != "ok"; })};
  Table table = {.columns = columns_of(shown), .rows = {}};
  for (const Measurement& row : rows) table.rows.push_back(cells_of(setting, row, shown));
  return table;
}

Json bench_row(const BenchSetting& setting, const Measurement& row) {
  const Figures figures = figures_of(row);
  Json json = setting_json(setting);
  json.update(Json({{"n_prompt", row.test.prompt},
                    {"n_gen", row.test.generate},
                    {"n_depth", row.test.depth},
                    {"test_time", row.started},
                    {"avg_ns", std::llround(figures.nanoseconds.mean)},
                    {"stddev_ns", std::llround(figures.nanoseconds.deviation)},
                    {"avg_ts", figures.tokens_per_s.mean},
                    {"stddev_ts", figures.tokens_per_s.deviation},
                    {"samples_ns", row.samples_ns},
                    {"samples_ts", figures.samples_tokens_per_s},
                    {"batch", row.test.batch},
                    {"depth", row.test.depth},
                    {"device", setting.device},
                    {"graphs", row.test.graphs},
                    {"bytes_per_s", number_or_null(figures.bytes_per_s)},
                    {"probe_bytes_per_s", number_or_null(row.ceilings.bytes_per_s)},
                    {"flops_per_s", number_or_null(figures.flops_per_s)},
                    {"probe_flops_per_s", number_or_null(row.ceilings.flops_per_s)},
                    {"status", row.status}}));
  json.update(card_json(row.card, row.test.tokens() * std::ssize(row.samples_ns)));
  return json;
}

namespace {

/// mean_ttft_ms, median_ttft_ms, std_ttft_ms, p99_ttft_ms, ...
void add(Json& json, const std::string& name, const Distribution& values,
         std::span<const double> percentages) {
  json["mean_" + name] = values.mean;
  json["median_" + name] = values.median;
  json["std_" + name] = values.deviation;
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    json[fmt::format("p{:g}_{}", percentages[i], name)] = values.percentiles[i];
  }
}

void add_experiment(Json& json, const WorkloadSetting& setting, const RequestRow& row) {
  const RequestCase& test = row.test;
  json.update(
      Json({{"date", row.started},
            {"endpoint_type", "hyb"},
            {"model_id", setting.model.model_filename},
            {"dataset_name", name_of(test.dataset)},
            {"workload", test.workload()},
            {"condition", name_of(test.condition)},
            {"experiment", test.experiment()},
            {"policy", test.policy},
            {"num_prompts", test.prompts},
            {"groups", test.groups},
            {"system_prompt_len", test.system_tokens},
            {"input_len", test.input_tokens},
            {"output_len", test.output_tokens},
            {"max_concurrency", test.concurrency > 0 ? Json(test.concurrency) : Json(nullptr)},
            {"request_rate", std::isinf(test.request_rate) ? Json("inf") : Json(test.request_rate)},
            {"burstiness", setting.burstiness},
            {"ignore_eos", setting.ignore_eos},
            {"seed", setting.seed},
            {"graphs", test.graphs},
            {"note", setting.note},
            {"status", row.status}}));
}

void add_metrics(Json& json, const WorkloadSetting& setting, const RequestMetrics& all) {
  json.update(Json(
      {{"duration", all.duration_s},
       {"completed", all.completed},
       {"failed", all.failed},
       {"total_input_tokens", all.input_tokens},
       {"total_output_tokens", all.output_tokens},
       {"request_throughput", number_or_null(all.request_throughput)},
       {"request_goodput", setting.metrics.goals.any() ? Json(all.request_goodput) : Json(nullptr)},
       {"output_throughput", number_or_null(all.output_throughput)},
       {"total_token_throughput", number_or_null(all.total_token_throughput)},
       {"max_output_tokens_per_s", all.output_tokens_per_s_max},
       {"max_concurrent_requests", all.requests_at_once_max}}));
  const std::vector<double>& percentages = setting.metrics.percentages;
  add(json, "ttft_ms", all.ttft_ms, percentages);
  add(json, "tpot_ms", all.tpot_ms, percentages);
  add(json, "itl_ms", all.itl_ms, percentages);
  add(json, "e2el_ms", all.e2el_ms, percentages);
  add(json, "client_queue_ms", all.client_queue_ms, percentages);
  add(json, "engine_queue_ms", all.engine_queue_ms, percentages);
  json.update(Json({{"reused_tokens", all.reused_tokens},
                    {"prefilled_tokens", all.prefilled_tokens},
                    {"recomputed_tokens", all.recomputed_tokens},
                    {"hit_rate", all.hit_rate()}}));
}

void add_machine(Json& json, const WorkloadSetting& setting, const RequestRow& row) {
  const EngineEvents events = events_of(row);
  json.update(Json({{"steps", events.steps},
                    {"failed_steps", events.failed_steps},
                    {"flips", events.flips},
                    {"superblocks_grown", events.grown},
                    {"units_compacted", events.compacted},
                    {"snapshots_taken", events.snapshots},
                    {"snapshots_resumed", events.resumes},
                    {"evictions", events.evictions},
                    {"preemptions", events.preemptions},
                    {"deferrals", events.deferrals},
                    {"prefix_waits", events.prefix_waits},
                    {"graph_captures", events.graph_captures},
                    {"graph_replays", events.graph_replays}}));
  const Achieved achieved = achieved_of(row);
  json.update(Json({{"bytes_per_s", number_or_null(achieved.bytes_per_s)},
                    {"probe_bytes_per_s", number_or_null(row.ceilings.bytes_per_s)},
                    {"flops_per_s", number_or_null(achieved.flops_per_s)},
                    {"probe_flops_per_s", number_or_null(row.ceilings.flops_per_s)},
                    {"roofline_share", number_or_null(achieved.roofline_share)},
                    {"runner_share", number_or_null(achieved.runner_share)}}));
  std::size_t page_bytes = 0;
  for (const PoolUsage::Group& group : row.fullest.groups) page_bytes += group.pages.bytes;
  json.update(
      Json({{"memory_weights", setting.weight_bytes},
            {"memory_workspace", setting.workspace_bytes},
            {"memory_pages", page_bytes},
            {"memory_states", row.fullest.live_slots.bytes},
            {"memory_snapshots", row.fullest.snapshot_slots.bytes + row.fullest.packed.bytes},
            {"memory_idle", row.fullest.idle_bytes + row.fullest.remainder_bytes},
            {"memory_free", row.fullest.free_bytes}}));
}

/// Figures of each repetition, and of each request of all of them.
void add_samples(Json& json, const RequestRow& row) {
  std::vector<double> rates;
  Json durations = Json::array(), requests = Json::array(), outputs = Json::array(),
       totals = Json::array(), ttft_means = Json::array(), tpot_means = Json::array(),
       e2el_means = Json::array();
  Json input_lens = Json::array(), output_lens = Json::array(), ttfts = Json::array(),
       itls = Json::array(), starts = Json::array(), e2els = Json::array(), errors = Json::array(),
       reused = Json::array();
  for (const Repetition& one : row.repetitions) {
    rates.push_back(one.metrics.output_throughput);
    durations.push_back(one.metrics.duration_s);
    requests.push_back(one.metrics.request_throughput);
    outputs.push_back(one.metrics.output_throughput);
    totals.push_back(one.metrics.total_token_throughput);
    ttft_means.push_back(one.metrics.ttft_ms.mean);
    tpot_means.push_back(one.metrics.tpot_ms.mean);
    e2el_means.push_back(one.metrics.e2el_ms.mean);
    for (const RequestRecord& record : one.records) {
      const bool is_answered = record.is_answered();
      input_lens.push_back(record.prompt_tokens);
      output_lens.push_back(record.token_s.size());
      starts.push_back(record.started_s);
      ttfts.push_back(is_answered ? record.ttft_s() : 0);
      e2els.push_back(is_answered ? record.e2el_s() : 0);
      reused.push_back(record.usage.reused_tokens);
      errors.push_back(record.error);
      Json gaps = Json::array();
      for (std::size_t i = 1; i < record.token_s.size(); ++i) {
        gaps.push_back(record.token_s[i] - record.token_s[i - 1]);
      }
      itls.push_back(std::move(gaps));
    }
  }
  json.update(Json({{"repetitions", row.repetitions.size()},
                    {"output_throughput_sd", statistics_of(rates).deviation},
                    {"durations", std::move(durations)},
                    {"request_throughputs", std::move(requests)},
                    {"output_throughputs", std::move(outputs)},
                    {"total_token_throughputs", std::move(totals)},
                    {"ttft_means_ms", std::move(ttft_means)},
                    {"tpot_means_ms", std::move(tpot_means)},
                    {"e2el_means_ms", std::move(e2el_means)},
                    {"input_lens", std::move(input_lens)},
                    {"output_lens", std::move(output_lens)},
                    {"start_times", std::move(starts)},
                    {"ttfts", std::move(ttfts)},
                    {"itls", std::move(itls)},
                    {"e2els", std::move(e2els)},
                    {"reused", std::move(reused)},
                    {"errors", std::move(errors)}}));
}

}  // namespace

Json request_row_json(const WorkloadSetting& setting, const RequestRow& row) {
  Json json = Json::object();
  add_experiment(json, setting, row);
  add_metrics(json, setting, pooled_metrics(row, setting.metrics));
  add_machine(json, setting, row);
  json.update(Json(setting_json(setting.model)));
  json["device"] = setting.model.device;
  json.update(card_json(card_of(row), json["total_output_tokens"].get<std::int64_t>()));
  add_samples(json, row);
  return json;
}

namespace {

constexpr int block_width = 50;

std::string rule(const std::string& title, char line) {
  return line == '=' ? fmt::format("{:=^{}}\n", title, block_width)
                     : fmt::format("{:-^{}}\n", title, block_width);
}

std::string count_line(const std::string& label, std::int64_t count) {
  return fmt::format("{:<40} {:<10}\n", label, count);
}

std::string value_line(const std::string& label, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", label, value);
}

std::string text_line(const std::string& label, const std::string& text) {
  return fmt::format("{:<40} {}\n", label, text);
}

std::string latency_block(const std::string& title, const std::string& name,
                          const Distribution& values, std::span<const double> percentages) {
  std::string text = rule(title, '-');
  text += value_line(fmt::format("Mean {} (ms):", name), values.mean);
  text += value_line(fmt::format("Median {} (ms):", name), values.median);
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    text += value_line(fmt::format("P{:g} {} (ms):", percentages[i], name), values.percentiles[i]);
  }
  return text;
}

std::string rates_text(double per_s, double ceiling, double unit, const char* name) {
  std::string text = fmt::format("{:.1f} {}", per_s / unit, name);
  if (ceiling > 0) text += fmt::format(" ({:.1f} % of the probe)", 100 * per_s / ceiling);
  return text;
}

std::string events_text(const EngineEvents& events) {
  std::string text = fmt::format("steps {}", events.steps);
  const auto add = [&](const char* name, std::int64_t count) {
    if (count > 0) text += fmt::format(", {} {}", name, count);
  };
  add("failed steps", events.failed_steps);
  add("flips", events.flips);
  add("grow", events.grown);
  add("compacted", events.compacted);
  add("snapshots", events.snapshots);
  add("resumed", events.resumes);
  add("evictions", events.evictions);
  add("preemptions", events.preemptions);
  add("deferrals", events.deferrals);
  add("graph captures", events.graph_captures);
  add("graph replays", events.graph_replays);
  return text;
}

std::string memory_text(const WorkloadSetting& setting, const PoolUsage& usage) {
  std::size_t pages = 0;
  for (const PoolUsage::Group& group : usage.groups) pages += group.pages.bytes;
  return fmt::format("weights {}, workspace {}, pages {}, states {}, snapshots {}, idle {}",
                     bytes_text(setting.weight_bytes), bytes_text(setting.workspace_bytes),
                     bytes_text(pages), bytes_text(usage.live_slots.bytes),
                     bytes_text(usage.snapshot_slots.bytes + usage.packed.bytes),
                     bytes_text(usage.idle_bytes + usage.remainder_bytes));
}

std::string hyb_block(const WorkloadSetting& setting, const RequestRow& row,
                      const RequestMetrics& all) {
  const Achieved achieved = achieved_of(row);
  std::vector<double> rates;
  for (const Repetition& one : row.repetitions) rates.push_back(one.metrics.output_throughput);
  std::string text = rule("Conditions", '-');
  text += text_line("Model:", model_text(setting.model));
  text += text_line("Machine:", machine_text(setting.model));
  text += text_line("Workload:", row.test.workload());
  text += text_line("Experiment:", row.test.experiment());
  text += text_line("Prefixes:", std::string(name_of(row.test.condition)) +
                                     (row.test.policy.empty() ? "" : ", " + row.test.policy));
  if (!row.test.graphs.empty()) text += text_line("CUDA graphs:", row.test.graphs);
  text += text_line("Repetitions (out tok/s):",
                    fmt::format("{}: {:.2f} ± {:.2f}", rates.size(), statistics_of(rates).mean,
                                statistics_of(rates).deviation));
  text += text_line("Prompt tokens reused, prefilled:",
                    fmt::format("{}, {} (hit rate {:.1f} %)", all.reused_tokens,
                                all.prefilled_tokens, 100 * all.hit_rate()));
  text += text_line("Events:", events_text(events_of(row)));
  text += text_line("Achieved:",
                    rates_text(achieved.bytes_per_s, row.ceilings.bytes_per_s, 1e9, "GB/s") + ", " +
                        rates_text(achieved.flops_per_s, row.ceilings.flops_per_s, 1e9, "GFLOP/s"));
  if (row.ceilings.flops_per_s > 0) {
    text += text_line("Of the roofline:", fmt::format("{:.1f} %", 100 * achieved.roofline_share));
  }
  text += text_line("Time in the model:", fmt::format("{:.2f} %", 100 * achieved.runner_share));
  const std::string card = card_text(card_of(row), all.output_tokens);
  if (!card.empty()) text += text_line("Card:", card);
  text += text_line("Memory:", memory_text(setting, row.fullest));
  if (!setting.note.empty()) text += text_line("Note:", setting.note);
  return text;
}

std::vector<std::string> figure_cells(const RequestRow& row, const RequestMetrics& all) {
  std::vector<double> rates;
  for (const Repetition& one : row.repetitions) rates.push_back(one.metrics.output_throughput);
  const Achieved achieved = achieved_of(row);
  std::string rate = fmt::format("{:.2f}", all.output_throughput);
  if (rates.size() > 1) rate += fmt::format(" ± {:.2f}", statistics_of(rates).deviation);
  return {
      fmt::format("{}/{}", all.completed, all.completed + all.failed),
      fmt::format("{:.2f}", all.request_throughput),
      rate,
      fmt::format("{:.2f}", all.total_token_throughput),
      fmt::format("{:.1f}", all.ttft_ms.median),
      fmt::format("{:.2f}", all.tpot_ms.median),
      fmt::format("{:.2f}", all.itl_ms.median),
      fmt::format("{:.1f}", all.e2el_ms.median),
      fmt::format("{:.1f} %", 100 * all.hit_rate()),
      row.ceilings.flops_per_s > 0 ? fmt::format("{:.1f} %", 100 * achieved.roofline_share) : "-"};
}

}  // namespace

std::string request_row_text(const WorkloadSetting& setting, const RequestRow& row) {
  const RequestMetrics all = pooled_metrics(row, setting.metrics);
  std::string text = rule(" Serving Benchmark Result ", '=');
  if (row.status != "ok") text += text_line("Status:", row.status);
  text += count_line("Successful requests:", all.completed);
  text += count_line("Failed requests:", all.failed);
  if (row.test.concurrency > 0) {
    text += count_line("Maximum request concurrency:", row.test.concurrency);
  }
  if (!std::isinf(row.test.request_rate)) {
    text += value_line("Request rate configured (RPS):", row.test.request_rate);
  }
  text += value_line("Benchmark duration (s):", all.duration_s);
  text += count_line("Total input tokens:", all.input_tokens);
  text += count_line("Total generated tokens:", all.output_tokens);
  text += value_line("Request throughput (req/s):", all.request_throughput);
  if (setting.metrics.goals.any()) {
    text += value_line("Request goodput (req/s):", all.request_goodput);
  }
  text += value_line("Output token throughput (tok/s):", all.output_throughput);
  text += value_line("Peak output token throughput (tok/s):", all.output_tokens_per_s_max);
  text += value_line("Peak concurrent requests:", static_cast<double>(all.requests_at_once_max));
  text += value_line("Total token throughput (tok/s):", all.total_token_throughput);
  const std::vector<double>& percentages = setting.metrics.percentages;
  text += latency_block("Time to First Token", "TTFT", all.ttft_ms, percentages);
  text +=
      latency_block("Time per Output Token (excl. 1st token)", "TPOT", all.tpot_ms, percentages);
  text += latency_block("Inter-token Latency", "ITL", all.itl_ms, percentages);
  text += latency_block("End-to-end Latency", "E2EL", all.e2el_ms, percentages);
  if (!row.test.is_closed_loop() && row.test.concurrency > 0) {
    text += latency_block("Client Queue Time", "client queue", all.client_queue_ms, percentages);
  }
  return text + hyb_block(setting, row, all) + rule("", '=');
}

Table request_table(const WorkloadSetting& setting, std::span<const RequestRow> rows) {
  const auto has = [&](auto&& holds) { return std::any_of(rows.begin(), rows.end(), holds); };
  const bool shows_policy = has([](const RequestRow& row) { return !row.test.policy.empty(); });
  const bool shows_graphs = varies_in_graphs(rows);
  const bool shows_status = has([](const RequestRow& row) { return row.status != "ok"; });
  Table table;
  table.columns = {{"workload"}, {"experiment"}, {"prefixes"}};
  if (shows_graphs) table.columns.push_back({"graphs"});
  if (shows_policy) table.columns.push_back({"policy"});
  for (const char* title : {"requests", "req/s", "out tok/s", "total tok/s", "TTFT ms", "TPOT ms",
                            "ITL ms", "E2EL ms", "hit rate", "of roofline"}) {
    table.columns.push_back({title, Align::right});
  }
  if (shows_status) table.columns.push_back({"status"});
  for (const RequestRow& row : rows) {
    const RequestMetrics all = pooled_metrics(row, setting.metrics);
    std::vector<std::string> cells = {row.test.workload(), row.test.experiment(),
                                      std::string(name_of(row.test.condition))};
    if (shows_graphs) cells.push_back(row.test.graphs);
    if (shows_policy) cells.push_back(row.test.policy);
    std::vector<std::string> figures(10, "-");
    if (row.is_measured()) figures = figure_cells(row, all);
    cells.insert(cells.end(), figures.begin(), figures.end());
    if (shows_status) cells.push_back(row.status);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

namespace {

constexpr std::array<double, 4> percentages = {5, 50, 95, 99};

RequestMetrics metrics_of(const RequestRow& row) {
  return pooled_metrics(row,
                        {.percentages = {percentages.begin(), percentages.end()}, .goals = {}});
}

const RequestRow* none_of(const RequestRow& row, std::span<const RequestRow> rows) {
  for (const RequestRow& other : rows) {
    if (other.test.policy == "none" && other.is_measured() &&
        other.test.workload() == row.test.workload() &&
        other.test.experiment() == row.test.experiment() &&
        other.test.condition == row.test.condition && other.test.graphs == row.test.graphs &&
        other.test.prompts == row.test.prompts) {
      return &other;
    }
  }
  return nullptr;
}

std::string relative(double value, double none) {
  return none > 0 ? fmt::format("{:.1f} ({:.0f} %)", value, 100 * value / none)
                  : fmt::format("{:.1f}", value);
}

/// A property of a row other than its policy.
struct Trait {
  const char* title;
  std::string (*text)(const RequestCase& test);
};

constexpr std::array<Trait, 5> row_traits = {
    {{"workload", [](const RequestCase& test) { return test.workload(); }},
     {"prompts", [](const RequestCase& test) { return std::to_string(test.prompts); }},
     {"experiment", [](const RequestCase& test) { return test.experiment(); }},
     {"prefixes", [](const RequestCase& test) { return std::string(name_of(test.condition)); }},
     {"graphs", [](const RequestCase& test) { return test.graphs; }}}};

std::vector<std::string> cells_of(const RequestRow& row, const RequestRow& none) {
  const RequestMetrics here = metrics_of(row), there = metrics_of(none);
  std::vector<std::string> cells = {row.test.policy,
                                    fmt::format("{:.1f} %", 100 * here.hit_rate())};
  for (std::size_t i = 0; i < 3; ++i) {
    cells.push_back(relative(here.ttft_ms.percentiles[i], there.ttft_ms.percentiles[i]));
  }
  cells.push_back(relative(here.tpot_ms.percentiles[3], there.tpot_ms.percentiles[3]));
  return cells;
}

}  // namespace

Table policy_table(std::span<const RequestRow> rows) {
  Table table;
  std::vector<Trait> shown;
  for (const Trait& trait : row_traits) {
    if (varies(rows, [&](const RequestRow& row) { return trait.text(row.test); })) {
      shown.push_back(trait);
    }
  }
  for (const RequestRow& row : rows) {
    const RequestRow* const none = none_of(row, rows);
    if (none == nullptr || none == &row || !row.is_measured()) continue;
    std::vector<std::string> cells;
    for (const Trait& trait : shown) cells.push_back(trait.text(row.test));
    for (std::string& cell : cells_of(row, *none)) cells.push_back(std::move(cell));
    table.rows.push_back(std::move(cells));
  }
  if (table.rows.empty()) return table;
  for (const Trait& trait : shown) table.columns.push_back({trait.title});
  for (const char* title : {"policy", "hit rate", "TTFT P5 ms (of none)", "TTFT P50 ms",
                            "TTFT P95 ms", "TPOT P99 ms"}) {
    const bool is_first = table.columns.size() == shown.size();
    table.columns.push_back({title, is_first ? Align::left : Align::right});
  }
  return table;
}

}  // namespace hyb::app
