#include "app/ui/table.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "app/ui/text.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

struct Shape {
  std::string_view before, between, after;
  bool escapes_bars = false;
  int columns_min = 0;
};

using Line = std::vector<std::string>;

std::string cell_text(const std::string& cell, const Shape& shape) {
  std::string text = sanitized_line(cell);
  if (!shape.escapes_bars) return text;
  std::string escaped;
  for (const char letter : text) {
    if (letter == '|') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

class Printer {
 public:
  Printer(const Table& table, const Shape& shape) : table_(&table), shape_(shape) {
    Line titles;
    for (const Column& column : table.columns) titles.push_back(cell_text(column.title, shape));
    lines_.push_back(std::move(titles));
    for (const auto& row : table.rows) {
      require(row.size() <= table.columns.size(), "table: no row is longer than the titles");
      Line cells;
      for (const std::string& cell : row) cells.push_back(cell_text(cell, shape));
      cells.resize(table.columns.size());
      lines_.push_back(std::move(cells));
    }
    widths_.assign(table.columns.size(), shape.columns_min);
    for (const Line& line : lines_) {
      for (std::size_t i = 0; i < line.size(); ++i) {
        widths_[i] = std::max(widths_[i], columns(line[i]));
      }
    }
  }

  std::size_t lines() const { return lines_.size(); }
  std::size_t width(std::size_t column) const { return static_cast<std::size_t>(widths_[column]); }

  std::string line(std::size_t index) const {
    std::string out(shape_.before);
    const Line& cells = lines_[index];
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) out += shape_.between;
      const std::string padding(width(i) - static_cast<std::size_t>(columns(cells[i])), ' ');
      const bool is_right = table_->columns[i].align == Align::right;
      out += is_right ? padding + cells[i] : cells[i] + padding;
    }
    out += shape_.after;
    out.erase(out.find_last_not_of(' ') + 1);
    return out += '\n';
  }

 private:
  const Table* table_;
  Shape shape_;
  std::vector<Line> lines_;
  std::vector<int> widths_;
};

}  // namespace

std::string markdown_text(const Table& table) {
  if (table.columns.empty()) return "";
  const Printer printer(table, {"| ", " | ", " |", true, 3});
  std::string out = printer.line(0);
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const bool is_right = table.columns[i].align == Align::right;
    out += (i == 0 ? "| " : " ") + std::string(printer.width(i) - 1, '-');
    out += is_right ? ": |" : "- |";
  }
  out += '\n';
  for (std::size_t i = 1; i < printer.lines(); ++i) out += printer.line(i);
  return out;
}

std::string plain_text(const Table& table) {
  const Printer printer(table, {"", "  ", ""});
  const bool has_titles = std::any_of(table.columns.begin(), table.columns.end(),
                                      [](const Column& column) { return !column.title.empty(); });
  std::string out;
  for (std::size_t i = has_titles ? 0 : 1; i < printer.lines(); ++i) out += printer.line(i);
  return out;
}

std::string pretty_json(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hyb::app
