#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/json.h"

namespace hyb::app {

// A row is an object; its arrays are samples, which tables of single values leave out.

/// Null for a rate that was not measured.
Json number_or_null(double value);

/// The keys as a line of CSV, and the values: strings in quotes, null empty.
std::string csv_header(const Json& row);
std::string csv_line(const Json& row);

/// SQL that makes a table for such rows unless there is one, and that adds a row to it, as
/// llama-bench writes them.
std::string sql_header(const Json& row, std::string_view table);
std::string sql_line(const Json& row, std::string_view table);

/// Rows in the wished format. What is made of lines goes to stdout as they are added, an array when
/// all are there.
class RowOutput {
 public:
  /// csv, json, jsonl or sql; rows of other formats are only kept.
  RowOutput(std::string format, std::string table)
      : format_(std::move(format)), table_(std::move(table)) {}

  void add(Json row);
  void finish() const;

  const Json& rows() const { return rows_; }

 private:
  std::string format_, table_;
  Json rows_ = Json::array();
};

}  // namespace hyb::app
