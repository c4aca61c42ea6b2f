#include "app/bench/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/bench/cases.h"
#include "app/bench/statistics.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/mapped_file.h"

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

/// A setting that a row's name has only where rows of one file differ in nothing else.
struct Detail {
  const char* key;
  const char* unit;
};
constexpr std::array details = {Detail{"graphs", ""}, Detail{"lanes", ""},
                                Detail{"num_prompts", " prompts"}};

using Details = std::vector<Detail>;

std::string plain_name_of(const Json& row) {
  if (!is_workload(row)) {
    const BenchCase test = {.prompt = count_of(row, "n_prompt"),
                            .generate = count_of(row, "n_gen"),
                            .depth = count_of(row, "n_depth"),
                            .batch = std::max(1, count_of(row, "batch"))};
    return test.batch > 1 ? fmt::format("{} b{}", test.name(), test.batch) : test.name();
  }
  std::string name = fmt::format("{}, {}, {}", text_of(row, "workload"), text_of(row, "experiment"),
                                 text_of(row, "condition"));
  if (!text_of(row, "policy").empty()) name += ", " + text_of(row, "policy");
  if (const std::string drafts = text_of(row, "spec_acceptance"); !drafts.empty()) {
    name += ", drafts right " + drafts;
  }
  return name;
}

std::string row_name(const Json& row, const Details& named_by) {
  std::string name = plain_name_of(row);
  for (const Detail& detail : named_by) {
    const std::string text = text_of(row, detail.key);
    if (!text.empty()) name += fmt::format(", {}{}", text, detail.unit);
  }
  return name;
}

/// The rows of an output; none of what is no output.
std::vector<const Json*> rows_of(const Json& output) {
  std::vector<const Json*> rows;
  if (!output.is_array()) return rows;
  for (const Json& row : output) {
    if (row.is_object() && (row.contains("samples_ts") || is_workload(row))) rows.push_back(&row);
  }
  return rows;
}

/// True if rows whose names are equal so far differ in this.
bool distinguishes(const std::vector<const Json*>& rows, const Details& named_by,
                   const Detail& detail) {
  std::map<std::string, std::string> known;
  for (const Json* row : rows) {
    const std::string text = text_of(*row, detail.key);
    const auto [first, is_new] = known.emplace(row_name(*row, named_by), text);
    if (!is_new && first->second != text) return true;
  }
  return false;
}

/// Returns the settings that the names in both files must contain: a setting with one value
/// throughout a file is no part of its names, so that files of different settings can be compared.
Details details_of(const Json& before, const Json& after) {
  Details named_by;
  for (const Detail& detail : details) {
    if (distinguishes(rows_of(before), named_by, detail) ||
        distinguishes(rows_of(after), named_by, detail)) {
      named_by.push_back(detail);
    }
  }
  return named_by;
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

using NamedRows = std::map<std::string, const Json*>;

NamedRows named_rows(const Json& output, const Details& named_by, const std::string& which) {
  NamedRows rows;
  for (const Json* row : rows_of(output)) {
    const auto [first, is_new] = rows.emplace(row_name(*row, named_by), row);
    if (!is_new) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: has two rows \"{}\", and which one is meant is ambiguous", which,
                              first->first));
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
    change.verdict = Difference::missing;
    return change;
  }
  if (std::abs(change.after - change.before) <=
      options.threshold_percent / 100 * std::abs(change.before)) {
    return change;
  }
  const bool is_better = (change.after > change.before) == before.more_is_better;
  if (!change.p) {
    change.verdict = Difference::too_few;
  } else if (*change.p < options.alpha) {
    change.verdict = is_better ? Difference::better : Difference::worse;
  }
  return change;
}

/// Finds what both files have under one name in rows that differ in this; null where none do.
std::pair<const Json*, const Json*> differing_rows(const std::vector<const Json*>& before,
                                                   const std::vector<const Json*>& after,
                                                   const Details& named_by, const Detail& detail) {
  NamedRows named;
  for (const Json* row : after) named.emplace(row_name(*row, named_by), row);
  for (const Json* row : before) {
    const auto found = named.find(row_name(*row, named_by));
    if (found == named.end()) continue;
    if (text_of(*row, detail.key) != text_of(*found->second, detail.key)) {
      return {row, found->second};
    }
  }
  return {};
}

std::string_view text_of(Difference verdict) {
  constexpr std::array<std::string_view, 5> texts = {"~", "better", "WORSE", "MISSING",
                                                     "? too few samples"};
  return texts[static_cast<std::size_t>(verdict)];
}

}  // namespace

std::vector<Change> compare(const Json& before, const Json& after, const CompareOptions& options) {
  const Details named_by = details_of(before, after);
  const NamedRows old_rows = named_rows(before, named_by, options.before);
  const NamedRows new_rows = named_rows(after, named_by, options.after);
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
  if (!has_common) {
    throw Error(ErrorKind::model,
                fmt::format("compare: the two files have no row in common; the first has \"{}\", "
                            "the second \"{}\"",
                            old_rows.begin()->first, new_rows.begin()->first));
  }
  return changes;
}

bool has_regression(const std::vector<Change>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return change.verdict == Difference::worse || change.verdict == Difference::missing;
  });
}

Table compare_table(const std::vector<Change>& changes) {
  Table table{.columns = columns_of("row|figure|>before|>after|>change|>p|verdict")};
  for (const Change& change : changes) {
    const bool is_missing = change.verdict == Difference::missing;
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
  const auto add_difference = [&](const Json& one_row, const Json& other_row, const char* key) {
    const std::string one = text_of(one_row, key), other = text_of(other_row, key);
    if (one == other) return;
    text += fmt::format("{}{}: {} and {}", text.empty() ? "" : "; ", key,
                        one.empty() ? "none" : one, other.empty() ? "none" : other);
  };
  const std::vector<const Json*> old_rows = rows_of(before), new_rows = rows_of(after);
  if (old_rows.empty() || new_rows.empty()) return text;
  for (const char* key : {"model_filename", "model_type", "model_size", "cpu_info", "gpu_info",
                          "backends", "n_threads", "n_batch", "type_k", "seed", "ignore_eos"}) {
    add_difference(*old_rows.front(), *new_rows.front(), key);
  }
  const Details named_by = details_of(before, after);
  for (const Detail& detail : details) {
    const auto [one, other] = differing_rows(old_rows, new_rows, named_by, detail);
    if (one != nullptr) add_difference(*one, *other, detail.key);
  }
  return text;
}

namespace {

constexpr int regression = 6;

bool is_count(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
}

bool is_text(const Json& value) { return value.is_string() || value.is_null(); }

/// A rate that is not a number was written as null.
bool is_list_of_numbers(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) {
           return one.is_number() || one.is_null();
         });
}

/// Keys that are read of rows, and the values they must have.
struct RowRule {
  std::string_view keys;
  bool (*is_kept)(const Json& value);
  const char* text;
};

constexpr std::array row_rules = {
    RowRule{"n_prompt n_gen n_depth batch num_prompts", is_count,
            "a whole number from 0 to 2147483647"},
    RowRule{"workload experiment condition policy graphs spec_acceptance lanes", is_text, "a text"},
    RowRule{"samples_ts output_throughputs ttft_means_ms tpot_means_ms e2el_means_ms",
            is_list_of_numbers, "a list of numbers"}};

void check_rows(const Json& output, const std::string& path) {
  for (const Json* row : rows_of(output)) {
    for (const RowRule& rule : row_rules) {
      for (const std::string_view key : words_of(rule.keys)) {
        const auto found = row->find(key);
        if (found == row->end() || rule.is_kept(*found)) continue;
        throw Error(ErrorKind::model,
                    fmt::format("{}: row {}: {} must be {}, is {}", path, row - &output.front() + 1,
                                key, rule.text, to_text(*found).substr(0, 80)));
      }
    }
  }
}

Json read_rows(const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const JsonLimits limits = {.bytes_max = std::size_t{1} << 30};
  Json rows = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, limits);
  check_rows(rows, path);
  return rows;
}

}  // namespace

int compare_files(const CompareOptions& options) {
  const Json before = read_rows(options.before), after = read_rows(options.after);
  const std::vector<Change> changes = compare(before, after, options);
  const std::string difference = setting_difference(before, after);
  if (!difference.empty()) log::warning("not the same setting: " + difference);
  write_stdout(markdown_text(compare_table(changes)));
  return has_regression(changes) ? regression : 0;
}

}  // namespace hyb::app
