#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/ui/text.h"

namespace hyb::app {

/// Look of a run of text on a terminal.
enum class Look : std::uint8_t {
  bold = 1,
  italic = 2,
  struck = 4,
  code = 8,
  link = 16,  ///< underlined
  faint = 32
};

struct StyledText {
  std::string text;
  unsigned looks = 0;  ///< of Look
};

/// The inline marks of Markdown at the front of `text`, read: emphasis, code, links, escapes. A
/// mark that nothing closes is text, which is known once `is_whole` says that nothing follows.
/// `before` is the character in front of the text. Returns the bytes that were read; the rest waits
/// for what follows.
std::size_t read_inline(std::string_view text, bool is_whole, unsigned looks,
                        std::vector<StyledText>& out, char before = ' ');

/// A line of source code with escape sequences for its strings, numbers, comments and for the
/// keywords of the language, which a fence names; unknown ones have strings and numbers only.
std::string highlighted(std::string_view line, std::string_view language);

/// Shows Markdown on a terminal while it streams in: headings, emphasis, lists, quotes, links,
/// tables, rules, blocks of code between lines, so that what is copied from a terminal is code
/// alone. Text is wrapped at words. All that is not read as a mark is shown as it is; nothing else
/// is left out. Takes text that a Sanitizer made harmless; every line that it returns ends the
/// escape sequences that it began.
class MarkdownView {
 public:
  /// Returns as much as is decided: a mark waits for what closes it, lines of code and tables for
  /// their end.
  std::string push(std::string_view text, int columns);

  /// The rest.
  std::string flush();

 private:
  enum class Block : std::uint8_t { unknown, text, code, table };

  void take_line_end();
  void take_part();
  bool begin_line(bool is_whole);
  bool begin_marked_line(std::size_t indent, std::string_view mark, bool is_whole);
  void begin_text(std::string_view first, std::string_view prefix, std::size_t marked,
                  unsigned looks);
  bool read_fence(std::string_view line);
  void show_text(bool is_whole);
  void show_table();
  void show(const StyledText& text);
  void show_line(std::string_view begin);

  int columns_ = 80;
  std::string line_;  ///< of it, what is not shown yet
  Block block_ = Block::unknown;
  unsigned looks_ = 0;       ///< of the line's text
  char before_ = ' ';        ///< what was shown of it last
  bool may_be_code_ = true;  ///< a line that four blanks begin: an empty one, or code, is above
  bool in_list_ = false;     ///< where blanks belong to an item
  WordWrap wrap_;
  std::string fence_;  ///< that ends the code; empty: it is not code
  std::size_t fence_indent_ = 0;
  std::string language_;
  std::vector<std::string> rows_;  ///< of a table
  std::string out_;
};

}  // namespace hyb::app
