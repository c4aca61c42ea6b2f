#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/bench/request_report.h"

namespace hyb::app {
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
        other.test.condition == row.test.condition) {
      return &other;
    }
  }
  return nullptr;
}

std::string relative(double value, double none) {
  return none > 0 ? fmt::format("{:.1f} ({:.0f} %)", value, 100 * value / none)
                  : fmt::format("{:.1f}", value);
}

}  // namespace

Table policy_table(std::span<const RequestRow> rows) {
  Table table;
  for (const RequestRow& row : rows) {
    const RequestRow* const none = none_of(row, rows);
    if (none == nullptr || none == &row || !row.is_measured()) continue;
    const RequestMetrics here = metrics_of(row), there = metrics_of(*none);
    std::vector<std::string> cells = {row.test.policy,
                                      fmt::format("{:.1f} %", 100 * here.hit_rate())};
    for (std::size_t i = 0; i < 3; ++i) {
      cells.push_back(relative(here.ttft_ms.percentiles[i], there.ttft_ms.percentiles[i]));
    }
    cells.push_back(relative(here.tpot_ms.percentiles[3], there.tpot_ms.percentiles[3]));
    table.rows.push_back(std::move(cells));
  }
  if (table.rows.empty()) return table;
  table.columns = {{"policy"},
                   {"hit rate", Align::right},
                   {"TTFT P5 ms (of none)", Align::right},
                   {"TTFT P50 ms", Align::right},
                   {"TTFT P95 ms", Align::right},
                   {"TPOT P99 ms", Align::right}};
  return table;
}

}  // namespace hyb::app
