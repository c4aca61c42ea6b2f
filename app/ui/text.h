#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text/unicode.h"

namespace hyb::app {

/// Makes text from a model or a file harmless to a terminal. Control characters (C0 but line break
/// and tab, DEL, C1) and the bidirectional embeddings, overrides and isolates become U+FFFD, one
/// for one; so the escape sequence they would have begun is shown as plain text and does nothing.
/// A carriage return before a line break is dropped. The result is well-formed UTF-8 and does not
/// depend on how the text is cut into chunks.
class Sanitizer {
 public:
  std::string push(std::string_view chunk);

  /// The rest, at the end of the text. This resets the sanitizer.
  std::string flush();

 private:
  void filter(std::string_view text, std::string& out);

  Utf8Stream stream_;
  bool carriage_return_ = false;  ///< seen last, and not yet decided on
};

/// A whole text at once.
std::string sanitized(std::string_view text);

/// The same on one line: line breaks and tabs become spaces.
std::string sanitized_line(std::string_view text);

/// True if Sanitizer replaces this character wherever it occurs.
bool is_unsafe(char32_t code_point);

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);

/// Columns that a terminal needs for well-formed UTF-8 without control characters: each grapheme
/// cluster is as wide as its widest character, and two wide where it asks for emoji presentation.
int columns(std::string_view text);

/// Returns the end of the grapheme cluster that begins at byte `at` < text.size().
std::size_t next_grapheme(std::string_view text, std::size_t at);

/// Returns the start of the grapheme cluster that ends before byte `at` > 0.
std::size_t previous_grapheme(std::string_view text, std::size_t at);

/// Begins a new line before a word that has no room in this one, while text comes. Words are parted
/// by white space, wide characters anywhere; what is longer than a line is cut by the terminal.
/// Nothing is left out but the white space at which a line was broken. Escape sequences that end in
/// "m" take no room.
class WordWrap {
 public:
  /// `prefix`: before every line that this begins.
  explicit WordWrap(std::string prefix = {}, int column = 0);

  /// Returns as much as is decided: the last word waits for what follows. A line has `columns`.
  std::string push(std::string_view text, int columns);

  /// The rest.
  std::string flush();

 private:
  void take(std::string_view grapheme);
  void place_word();

  std::string prefix_;
  int indent_, column_;  ///< columns of the prefix, and in the line
  int columns_ = 80;
  std::string rest_;  ///< begins a grapheme that may go on
  std::string spaces_, word_;
  std::string escapes_;  ///< before the next character of the word
  int spaces_columns_ = 0, word_columns_ = 0;
  bool is_escape_ = false;  ///< within a sequence
  bool is_wide_ = false;    ///< the word is one wide character
  bool is_long_ = false;    ///< what has no space yet is longer than a line
  std::string out_;
};

/// Text wrapped at words; lines that are broken go on below what follows the last gap of two
/// spaces near their begin, as in lists of names and explanations. The first line begins at
/// `column`.
std::string wrapped(std::string_view text, int columns, int column = 0);

/// Returns as much of the front of `text` as fits into `columns_max`, ending in "..." when cut.
std::string cut_to_columns(std::string_view text, int columns_max);

}  // namespace hyb::app
