#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyb {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

/// What stands at one place of a text.
struct Utf8Unit {
  enum class Kind { character, ill_formed, incomplete };
  Kind kind;
  /// Of the character, or of the maximal subpart that one U+FFFD replaces (Unicode 3.9, D93b).
  std::size_t bytes;
  char32_t code_point;  ///< U+FFFD unless a character
};

/// Reads the unit at byte `at` < text.size(). `incomplete`: the text ends inside what could still
/// become a character.
Utf8Unit read_utf8(std::string_view text, std::size_t at);

/// Reads a character of a text known to be well-formed, and moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// Reads the character of a well-formed text that ends before byte `at` > 0.
char32_t code_point_before(std::string_view text, std::size_t at);

void append_utf8(std::string& text, char32_t code_point);

bool is_well_formed(std::string_view text);

/// The beginning of a well-formed text for an error message, with "..." where there is more.
std::string excerpt(std::string_view text);

}  // namespace hyb
