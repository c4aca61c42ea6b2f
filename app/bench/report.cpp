#include "app/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/bench/card_report.h"
#include "app/bench/statistics.h"

namespace hyb::app {
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

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(nullptr); }

std::string share_text(double value, double whole) {
  return value > 0 && whole > 0 ? fmt::format("{:.1f} %", 100 * value / whole) : "-";
}

std::string parameters_text(std::int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return parameters < 1'000'000'000 ? fmt::format("{:.2f} M", count / 1e6)
                                    : fmt::format("{:.2f} B", count / 1e9);
}

/// The cells of one row of the table, without those that only some tables have.
std::vector<std::string> cells_of(const BenchSetting& setting, const Measurement& row) {
  std::vector<std::string> cells = {setting.model_type,
                                    bytes_text(setting.model_bytes),
                                    parameters_text(setting.parameters),
                                    fmt::format("{} {}", setting.device, setting.isa),
                                    std::to_string(setting.threads),
                                    row.test.name()};
  if (!row.is_measured()) {
    cells.insert(cells.end(), 5, "-");
    return cells;
  }
  const Figures figures = figures_of(row);
  cells.push_back(
      fmt::format("{:.2f} ± {:.2f}", figures.tokens_per_s.mean, figures.tokens_per_s.deviation));
  cells.push_back(fmt::format("{:.2f}", figures.bytes_per_s / 1e9));
  cells.push_back(share_text(figures.bytes_per_s, row.ceilings.bytes_per_s));
  cells.push_back(fmt::format("{:.1f}", figures.flops_per_s / 1e9));
  cells.push_back(share_text(figures.flops_per_s, row.ceilings.flops_per_s));
  return cells;
}

}  // namespace

Table bench_table(const BenchSetting& setting, std::span<const Measurement> rows) {
  const auto has_batch = [](const Measurement& row) { return row.test.batch > 1; };
  const auto has_failed = [](const Measurement& row) { return row.status != "ok"; };
  const auto has_other_graphs = [&](const Measurement& row) {
    return row.test.graphs != rows.front().test.graphs;
  };
  const bool shows_graphs = std::any_of(rows.begin(), rows.end(), has_other_graphs);
  const bool shows_batch = std::any_of(rows.begin(), rows.end(), has_batch);
  const bool shows_status = std::any_of(rows.begin(), rows.end(), has_failed);
  constexpr std::ptrdiff_t test_column = 5;

  Table table;
  table.columns = {{"model"},
                   {"size", Align::right},
                   {"params", Align::right},
                   {"backend"},
                   {"threads", Align::right},
                   {"test", Align::right},
                   {"t/s", Align::right},
                   {"GB/s", Align::right},
                   {"of read probe", Align::right},
                   {"GFLOP/s", Align::right},
                   {"of FLOP probe", Align::right}};
  if (shows_graphs) table.columns.insert(table.columns.begin() + test_column, {"graphs"});
  if (shows_batch)
    table.columns.insert(table.columns.begin() + test_column, {"batch", Align::right});
  if (shows_status) table.columns.push_back({"status"});
  for (const Measurement& row : rows) {
    std::vector<std::string> cells = cells_of(setting, row);
    if (shows_graphs) cells.insert(cells.begin() + test_column, row.test.graphs);
    if (shows_batch) cells.insert(cells.begin() + test_column, std::to_string(row.test.batch));
    if (shows_status) cells.push_back(row.status);
    table.rows.push_back(std::move(cells));
  }
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

}  // namespace hyb::app
