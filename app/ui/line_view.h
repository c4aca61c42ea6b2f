#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hyb::app {

struct ViewOptions {
  std::string_view prompt;        ///< before the first line, "> "
  std::string_view continuation;  ///< before every other line, as wide as the prompt
  int columns = 80;
  int rows_max = 24;
};

/// An edited text as rows of a terminal.
struct View {
  std::vector<std::string> rows;  ///< each at most `columns` wide, harmless to a terminal
  int cursor_row = 0;
  int cursor_column = 0;
};

/// Lays out the part of `text` around the cursor (a byte offset) that fits into the rows, in time
/// that depends on the rows and not on the text. Control characters show as ^X, tabs as four
/// spaces; a row "..." says that there is more above or below.
View lay_out(std::string_view text, std::size_t cursor, const ViewOptions& options);

}  // namespace hyb::app
