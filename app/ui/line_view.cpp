#include "app/ui/line_view.h"

#include <algorithm>

#include "app/ui/sanitizer.h"
#include "app/ui/text_width.h"
#include "core/text/utf8.h"

namespace hyb::app {
namespace {

// A cluster longer than this is shown in parts: no more can be asked of a terminal.
constexpr std::size_t bytes_per_column = 8;

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

/// What is shown for the grapheme cluster.
std::string shown(std::string_view grapheme) {
  if (grapheme == "\t") return "    ";
  const auto first = static_cast<unsigned char>(grapheme.front());
  if (first < 0x20) return {'^', static_cast<char>(first + '@')};
  if (first == 0x7F) return "^?";
  std::string out;
  for (std::size_t at = 0; at < grapheme.size();) {
    const char32_t code_point = next_code_point(grapheme, at);
    append_utf8(out, is_unsafe(code_point) ? U'\xFFFD' : code_point);
  }
  return out;
}

class Layout {
 public:
  Layout(std::string_view text, std::size_t cursor, const ViewOptions& options)
      : text_(text), cursor_(cursor), options_(options) {}

  View take() {
    const auto bytes = static_cast<std::size_t>(std::max(options_.rows_max, 1)) *
                       static_cast<std::size_t>(std::max(options_.columns, 1)) * bytes_per_column;
    std::size_t begin = cursor_ - std::min(cursor_, bytes);
    while (begin > 0 && is_inside_character(text_, begin)) --begin;
    std::size_t end = cursor_ + std::min(text_.size() - cursor_, bytes);
    while (is_inside_character(text_, end)) ++end;
    if (begin > 0) add_row("...");
    begin_row(begin == 0 ? options_.prompt : options_.continuation);
    lay(begin, end);
    if (end < text_.size()) add_row("...");
    keep_rows_around_cursor();
    return std::move(view_);
  }

 private:
  void add_row(std::string row) { view_.rows.push_back(std::move(row)); }

  void begin_row(std::string_view prompt) {
    // In a window too narrow for it, the prompt gives way to the text.
    const int width = columns(prompt);
    const bool fits = width + 4 <= options_.columns;
    add_row(fits ? std::string(prompt) : std::string());
    used_ = fits ? width : 0;
  }

  void mark_cursor() {
    view_.cursor_row = static_cast<int>(view_.rows.size()) - 1;
    view_.cursor_column = used_;
  }

  void lay(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      if (text_[at] == '\n') {
        if (at == cursor_) mark_cursor();
        begin_row(options_.continuation);
        ++at;
        continue;
      }
      const std::size_t next = next_grapheme(text_.substr(0, end), at);
      const std::string piece = shown(text_.substr(at, next - at));
      const int width = columns(piece);
      if (used_ + width > options_.columns && used_ > 0) {
        add_row("");
        used_ = 0;
      }
      if (cursor_ >= at && cursor_ < next) mark_cursor();
      view_.rows.back() += piece;
      used_ += width;
      at = next;
    }
    if (cursor_ != end) return;
    if (used_ >= options_.columns) {
      add_row("");
      used_ = 0;
    }
    mark_cursor();
  }

  void keep_rows_around_cursor() {
    const auto rows_max = static_cast<std::size_t>(std::max(options_.rows_max, 1));
    std::vector<std::string>& rows = view_.rows;
    if (rows.size() <= rows_max) return;
    const auto cursor = static_cast<std::size_t>(view_.cursor_row);
    const std::size_t above = std::min(cursor, rows_max / 2);
    const std::size_t first = std::min(cursor - above, rows.size() - rows_max);
    const bool more_below = first + rows_max < rows.size();
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(first + rows_max), rows.end());
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(first));
    view_.cursor_row -= static_cast<int>(first);
    if (first > 0 && view_.cursor_row > 0) rows.front() = "...";
    if (more_below && view_.cursor_row + 1 < static_cast<int>(rows.size())) rows.back() = "...";
  }

  std::string_view text_;
  std::size_t cursor_;
  ViewOptions options_;
  View view_;
  int used_ = 0;
};

}  // namespace

View lay_out(std::string_view text, std::size_t cursor, const ViewOptions& options) {
  return Layout(text, cursor, options).take();
}

}  // namespace hyb::app
