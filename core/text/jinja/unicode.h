#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyb::jinja {

// Python's strings are code points, ours are UTF-8. Every byte that is not valid UTF-8 counts as a
// character (decoded as U+FFFD), so these functions cannot fail.

/// Length of the character that starts at `at` < text.size(): 1 to 4 bytes.
std::size_t character_bytes(std::string_view text, std::size_t at);
char32_t decode_character(std::string_view text, std::size_t at);
void append_character(std::string& out, char32_t character);

std::size_t count_characters(std::string_view text);
bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);

/// str.isspace of one character; also `\s` of Python's re.
bool is_space(char32_t character);
bool is_alphabetic(char32_t character);
bool is_decimal_digit(char32_t character);
bool is_numeric(char32_t character);
bool is_upper_case(char32_t character);
bool is_lower_case(char32_t character);
/// Whether repr() shows it as itself.
bool is_printable(char32_t character);

void append_upper(std::string& out, char32_t character);
void append_lower(std::string& out, char32_t character);
void append_title(std::string& out, char32_t character);

/// Byte offset of the first and of the last occurrence, or npos. Linear time for any input.
std::size_t find_first(std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view needle);

}  // namespace hyb::jinja
