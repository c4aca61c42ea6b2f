#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"

namespace hyb::app {

enum class Align : std::uint8_t { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

/// Cells are single lines of text; a row that is too short ends in empty cells, one that is too
/// long is a bug of ours.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows = {};
};

/// Columns by their titles, which bars separate; those after a ">" are aligned to the right.
std::vector<Column> columns_of(std::string_view titles);

/// A Markdown table with aligned columns; "|" in cells is escaped. Ends in a line break; empty
/// without columns.
std::string markdown_text(const Table& table);

/// Columns two spaces apart, titles first where there are any, no space at line ends.
std::string plain_text(const Table& table);

/// Plain text that no line of which is wider than `width` columns, as far as cells allow: where the
/// whole is, columns that are the same in all rows (of a single row those of words) become a line
/// of "title value" before it, and what is still too wide continues in blocks that begin with the
/// first column.
std::string fitted_text(const Table& table, int width);

/// Indented by two, with a line break at the end; invalid UTF-8 (a folder's name) becomes U+FFFD.
std::string pretty_json(const Json& json);

}  // namespace hyb::app
