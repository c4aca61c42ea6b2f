#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text/unicode.h"

namespace hyb::jinja {

// Python's strings are code points, ours are UTF-8. Every byte that is not valid UTF-8 counts as a
// character (decoded as U+FFFD), so these functions cannot fail. What is the same for tokenizers is
// in core/text/unicode.h.

/// Length of the character that starts at `at` < text.size(): 1 to 4 bytes.
std::size_t character_bytes(std::string_view text, std::size_t at);
char32_t decode_character(std::string_view text, std::size_t at);

std::size_t count_characters(std::string_view text);
bool is_ascii(std::string_view text);

/// str.isspace of one character; also `\s` of Python's re.
bool is_space(char32_t character);
bool is_alphabetic(char32_t character);
bool is_upper_case(char32_t character);
bool is_lower_case(char32_t character);
/// Returns whether repr() shows it as itself.
bool is_printable(char32_t character);

void append_upper(std::string& out, char32_t character);
void append_lower(std::string& out, char32_t character);
void append_title(std::string& out, char32_t character);

/// Byte offset of the first occurrence, or npos. Linear time for any input.
std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from = 0);

}  // namespace hyb::jinja
