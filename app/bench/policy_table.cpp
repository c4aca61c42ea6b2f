#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/bench/request_report.h"
#include "app/bench/varying.h"

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

/// What a row is beside its policy.
struct Trait {
  const char* title;
  std::string (*text)(const RequestCase& test);
};

constexpr std::array<Trait, 5> traits = {
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
  for (const Trait& trait : traits) {
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
