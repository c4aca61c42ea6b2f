#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hyb::app {

/// What a person entered, with the marks of multi-line input taken out.
struct Entry {
  std::string text;
  bool is_literal = false;  ///< stood between """ marks: never a command
};

/// Reads a text at the end of a line. None: it goes on in the next line, because it ends in a
/// backslash, or because it begins with """ and the closing """ is not at its end yet.
std::optional<Entry> finish_entry(std::string_view text);

/// What an unfinished text becomes when the next line begins: the backslash that asked for it makes
/// room for the line break.
std::string continued(std::string text);

/// What to enter so that finish_entry() gives `text` back, wherever that is possible: a text that
/// itself has """ marks and ends in a backslash is returned as it is.
std::string as_entry(const std::string& text);

}  // namespace hyb::app
