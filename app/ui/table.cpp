#include "app/ui/table.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"

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

std::vector<Column> columns_of(std::string_view titles) {
  std::vector<Column> columns;
  for (const std::string_view title : split(titles, '|')) {
    const bool is_right = title.starts_with('>');
    columns.push_back(
        {std::string(title.substr(is_right ? 1 : 0)), is_right ? Align::right : Align::left});
  }
  return columns;
}

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

namespace {

bool is_same_in_all(const Table& table, std::size_t column) {
  if (table.rows.size() == 1 && table.columns[column].align == Align::right) return false;
  const auto cell = [&](const std::vector<std::string>& row) {
    return column < row.size() ? std::string_view(row[column]) : std::string_view();
  };
  return !table.columns[column].title.empty() &&
         std::ranges::all_of(table.rows, [&](const auto& row) {
           return !cell(row).empty() && cell(row) == cell(table.rows.front());
         });
}

Table part_of(const Table& table, const std::vector<std::size_t>& chosen) {
  Table part;
  for (const std::size_t i : chosen) part.columns.push_back(table.columns[i]);
  for (const auto& row : table.rows) {
    part.rows.emplace_back();
    for (const std::size_t i : chosen) {
      part.rows.back().push_back(i < row.size() ? row[i] : std::string());
    }
  }
  return part;
}

int width_of(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    width = std::max(width, columns(text.substr(at, end - at)));
    at = end + 1;
  }
  return width;
}

}  // namespace

std::string fitted_text(const Table& table, int width) {
  std::string whole = plain_text(table);
  if (width_of(whole) <= width || table.rows.empty()) return whole;
  std::string text;
  std::vector<std::size_t> varied;
  int at = 0;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (!is_same_in_all(table, i)) {
      varied.push_back(i);
      continue;
    }
    const std::string item = sanitized_line(table.columns[i].title + " " + table.rows.front()[i]);
    const bool is_next = at > 0 && at + 2 + columns(item) < width;
    if (at > 0) text += is_next ? ", " : ",\n";
    text += item;
    at = columns(item) + (is_next ? at + 2 : 0);
  }
  if (at > 0) text += "\n\n";
  std::vector<std::size_t> block;
  for (const std::size_t column : varied) {
    std::vector<std::size_t> wider = block;
    wider.push_back(column);
    if (block.size() > 1 && width_of(plain_text(part_of(table, wider))) > width) {
      text += plain_text(part_of(table, block)) + '\n';
      wider = {varied.front(), column};
    }
    block = std::move(wider);
  }
  return block.empty() ? text : text + plain_text(part_of(table, block));
}

std::string pretty_json(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace hyb::app
