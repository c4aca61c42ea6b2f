#include "app/bench/row_text.h"

#include <fmt/format.h>

#include "app/ui/pretty_json.h"
#include "app/ui/process.h"

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

}  // namespace hyb::app
