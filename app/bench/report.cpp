#include "app/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/bench/card_report.h"
#include "app/bench/row_text.h"
#include "app/bench/statistics.h"
#include "app/bench/varying.h"

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

}  // namespace hyb::app
