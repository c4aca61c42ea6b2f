#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyb::app {

/// Columns that a terminal needs for well-formed UTF-8 without control characters: each grapheme
/// cluster is as wide as its widest character, and two wide where it asks for emoji presentation.
int columns(std::string_view text);

/// Where the grapheme cluster that begins at byte `at` < text.size() ends.
std::size_t next_grapheme(std::string_view text, std::size_t at);

/// Where the grapheme cluster that ends before byte `at` > 0 begins.
std::size_t previous_grapheme(std::string_view text, std::size_t at);

/// As much of the front of `text` as fits into `columns_max`, ending in "..." when cut.
std::string cut_to_columns(std::string_view text, int columns_max);

}  // namespace hyb::app
