#include "app/bench/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/bench/bench_case.h"
#include "app/bench/significance.h"
#include "app/bench/statistics.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct Figure {
  const char* name;
  bool more_is_better;
  std::vector<double> values;
};

std::vector<double> numbers_of(const Json& row, const char* key) {
  std::vector<double> values;
  const auto found = row.find(key);
  if (found == row.end() || !found->is_array()) return values;
  for (const Json& value : *found) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  return values;
}

std::int32_t count_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number_integer() ? found->get<std::int32_t>() : 0;
}

std::string text_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : to_text(*found);
}

bool is_workload(const Json& row) { return row.contains("workload"); }

std::string graphs_suffix(const Json& row) {
  const std::string mode = text_of(row, "graphs");
  return mode.empty() ? "" : ", " + mode;
}

std::string name_of(const Json& row) {
  if (!is_workload(row)) {
    const BenchCase test = {.prompt = count_of(row, "n_prompt"),
                            .generate = count_of(row, "n_gen"),
                            .depth = count_of(row, "n_depth"),
                            .batch = std::max(1, count_of(row, "batch"))};
    const std::string name =
        test.batch > 1 ? fmt::format("{} b{}", test.name(), test.batch) : test.name();
    return name + graphs_suffix(row);
  }
  std::string name = fmt::format("{}, {}, {}", text_of(row, "workload"), text_of(row, "experiment"),
                                 text_of(row, "condition"));
  if (!text_of(row, "policy").empty()) name += ", " + text_of(row, "policy");
  return name + graphs_suffix(row);
}

/// One value per repetition: the requests of one are no independent samples, what slows the machine
/// slows all of them.
std::vector<Figure> figures_of(const Json& row) {
  if (!is_workload(row)) return {{"t/s", true, numbers_of(row, "samples_ts")}};
  return {{"out tok/s", true, numbers_of(row, "output_throughputs")},
          {"TTFT ms", false, numbers_of(row, "ttft_means_ms")},
          {"TPOT ms", false, numbers_of(row, "tpot_means_ms")},
          {"E2EL ms", false, numbers_of(row, "e2el_means_ms")}};
}

std::map<std::string, const Json*> rows_of(const Json& output, const char* which) {
  std::map<std::string, const Json*> rows;
  if (output.is_array()) {
    for (const Json& row : output) {
      if (row.is_object() && (row.contains("samples_ts") || is_workload(row))) {
        rows.emplace(name_of(row), &row);
      }
    }
  }
  if (rows.empty()) {
    throw Error(
        ErrorKind::model,
        fmt::format("{}: no rows of a benchmark; it is the output of hyb bench -o json", which));
  }
  return rows;
}

Change change_of(const std::string& row, const Figure& before, const std::vector<double>& after,
                 const CompareOptions& options) {
  Change change = {.row = row,
                   .figure = before.name,
                   .before = statistics_of(before.values).mean,
                   .after = statistics_of(after).mean,
                   .p = welch_p(before.values, after)};
  if (after.empty()) {
    change.verdict = Verdict::missing;
    return change;
  }
  if (std::abs(change.after - change.before) <= options.threshold * std::abs(change.before)) {
    return change;
  }
  const bool is_better = (change.after > change.before) == before.more_is_better;
  if (!change.p) {
    change.verdict = Verdict::too_few;
  } else if (*change.p < options.alpha) {
    change.verdict = is_better ? Verdict::better : Verdict::worse;
  }
  return change;
}

std::string_view text_of(Verdict verdict) {
  constexpr std::array<std::string_view, 5> texts = {"~", "better", "WORSE", "MISSING",
                                                     "? too few samples"};
  return texts[static_cast<std::size_t>(verdict)];
}

}  // namespace

std::vector<Change> compare(const Json& before, const Json& after, const CompareOptions& options) {
  const auto old_rows = rows_of(before, "the first file"),
             new_rows = rows_of(after, "the second file");
  std::vector<Change> changes;
  bool has_common = false;
  for (const auto& [name, row] : old_rows) {
    const auto found = new_rows.find(name);
    has_common = has_common || found != new_rows.end();
    std::vector<Figure> now;
    if (found != new_rows.end()) now = figures_of(*found->second);
    const std::vector<Figure> figures = figures_of(*row);
    for (std::size_t i = 0; i < figures.size(); ++i) {
      if (figures[i].values.empty()) continue;
      const std::vector<double> values = i < now.size() ? now[i].values : std::vector<double>();
      changes.push_back(change_of(name, figures[i], values, options));
    }
  }
  if (!has_common) throw Error(ErrorKind::model, "compare: the two files have no row in common");
  return changes;
}

bool has_regression(const std::vector<Change>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return change.verdict == Verdict::worse || change.verdict == Verdict::missing;
  });
}

Table compare_table(const std::vector<Change>& changes) {
  Table table;
  table.columns = {{"row"},
                   {"figure"},
                   {"before", Align::right},
                   {"after", Align::right},
                   {"change", Align::right},
                   {"p", Align::right},
                   {"verdict"}};
  for (const Change& change : changes) {
    const bool is_missing = change.verdict == Verdict::missing;
    const double share = change.before != 0 ? change.after / change.before - 1 : 0;
    table.rows.push_back({change.row, change.figure, fmt::format("{:.2f}", change.before),
                          is_missing ? "-" : fmt::format("{:.2f}", change.after),
                          is_missing ? "-" : fmt::format("{:+.1f} %", 100 * share),
                          change.p ? fmt::format("{:.3f}", *change.p) : "-",
                          std::string(text_of(change.verdict))});
  }
  return table;
}

std::string setting_difference(const Json& before, const Json& after) {
  std::string text;
  if (!before.is_array() || !after.is_array() || before.empty() || after.empty()) return text;
  for (const char* key : {"model_filename", "model_type", "model_size", "cpu_info", "gpu_info",
                          "backends", "n_threads", "n_batch", "type_k", "seed", "ignore_eos"}) {
    const std::string one = text_of(before.front(), key), other = text_of(after.front(), key);
    if (one == other) continue;
    text += fmt::format("{}{}: {} and {}", text.empty() ? "" : "; ", key, one, other);
  }
  return text;
}

}  // namespace hyb::app
