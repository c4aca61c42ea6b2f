#include "app/bench/request_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/bench/card_report.h"
#include "app/bench/varying.h"
#include "app/options.h"

namespace hyb::app {
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

std::string own_block(const WorkloadSetting& setting, const RequestRow& row,
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
  return text + own_block(setting, row, all) + rule("", '=');
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

}  // namespace hyb::app
