#include "app/bench/bench_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "app/bench/report.h"

namespace hyb::app {
namespace {

std::string line_name(const RequestRow& row, bool names_graphs) {
  std::string name = fmt::format("{}, {}", row.test.workload(), name_of(row.test.condition));
  if (!row.test.policy.empty()) name += ", " + row.test.policy;
  return names_graphs ? name + ", " + graphs_text(row.test.graphs) : name;
}

}  // namespace

Plot depth_plot(std::span<const Measurement> rows) {
  Plot plot = {.title = "Tokens per second over depth",
               .x_title = "tokens in memory",
               .y_title = "tokens/s"};
  const bool names_graphs = varies_in_graphs(rows);
  double least = 0, most = 0;
  for (const Measurement& row : rows) {
    if (!row.is_measured()) continue;
    BenchCase test = row.test;
    test.depth = 0;
    std::string name = test.name();
    if (test.batch > 1) name += fmt::format(", batch {}", test.batch);
    if (names_graphs) name += ", " + graphs_text(test.graphs);
    std::vector<double> rates;
    for (const std::int64_t elapsed : row.samples_ns) {
      rates.push_back(static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(elapsed));
    }
    const auto count = static_cast<double>(rates.size());
    const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / count;
    double squares = 0;
    for (const double rate : rates) squares += (rate - mean) * (rate - mean);
    const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
    line_of(plot, name)
        .points.push_back({.x = static_cast<double>(row.test.depth),
                           .y = mean,
                           .error = deviation,
                           .label = fmt::format("{:.{}f}", mean, mean < 100 ? 1 : 0)});
    least = least == 0 ? mean : std::min(least, mean);
    most = std::max(most, mean);
  }
  // Prompts and answers are an order of magnitude apart.
  plot.is_y_logarithmic = most > 8 * least;
  sort_points(plot);
  return plot;
}

Plot load_plot(std::span<const RequestRow> rows) {
  Plot plot = {.title = "Latency over throughput",
               .x_title = "generated tokens/s",
               .y_title = "median E2EL, ms"};
  const bool names_graphs = varies_in_graphs(rows);
  for (const RequestRow& row : rows) {
    if (!row.is_measured()) continue;
    const RequestMetrics all = pooled_metrics(row, {.percentages = {}, .goals = {}});
    line_of(plot, line_name(row, names_graphs))
        .points.push_back({all.output_throughput, all.e2el_ms.median});
  }
  sort_points(plot);
  return plot;
}

Plot lane_plot(std::span<const RequestRow> rows) {
  Plot plot = {.title = "Tokens per second of the device and of a user",
               .x_title = "tokens/s per user",
               .y_title = "tokens/s per device"};
  const bool names_graphs = varies_in_graphs(rows);
  const bool names_work =
      varies(rows, [&](const RequestRow& row) { return line_name(row, names_graphs); });
  for (const RequestRow& row : rows) {
    if (!row.is_measured()) continue;
    const RequestMetrics all = pooled_metrics(row, {.percentages = {}, .goals = {}});
    PlotLine& line = line_of(
        plot, names_work ? row.test.lanes + ", " + line_name(row, names_graphs) : row.test.lanes);
    line.points.push_back({.x = tokens_per_s_of_user(all),
                           .y = all.output_throughput,
                           .label = row.test.is_closed_loop()
                                        ? std::to_string(row.test.concurrency)
                                        : fmt::format("{:g}/s", row.test.request_rate)});
  }
  return plot;
}

Plot hit_rate_plot(std::span<const RequestRow> rows) {
  Plot plot = {
      .title = "Prompt tokens reused so far", .x_title = "seconds", .y_title = "token hit rate, %"};
  const bool names_graphs = varies_in_graphs(rows);
  const bool names_experiment =
      varies(rows, [](const RequestRow& row) { return row.test.experiment(); });
  for (const RequestRow& row : rows) {
    if (!row.is_measured()) continue;
    std::vector<const RequestRecord*> records;
    for (const RequestRecord& record : row.repetitions.front().records) {
      if (record.is_answered()) records.push_back(&record);
    }
    std::sort(records.begin(), records.end(),
              [](const auto* one, const auto* other) { return one->started_s < other->started_s; });
    double prompts = 0, reused = 0;
    const std::string name = line_name(row, names_graphs);
    PlotLine& line = line_of(plot, names_experiment ? name + ", " + row.test.experiment() : name);
    for (const RequestRecord* record : records) {
      prompts += record->prompt_tokens;
      reused += record->usage.reused_tokens;
      line.points.push_back({record->started_s, 100 * reused / std::max(prompts, 1.0)});
    }
  }
  return plot;
}

}  // namespace hyb::app
