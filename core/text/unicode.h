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

/// Turns bytes that arrive in any cuts into well-formed UTF-8, a whole character at a time. What is
/// ill-formed becomes U+FFFD per maximal subpart, wherever the cuts fall.
class Utf8Stream {
 public:
  /// Appends what is certain now to `out`.
  void push(std::string_view bytes, std::string& out);

  /// Appends U+FFFD for an incomplete character that is left, if any.
  void flush(std::string& out);

 private:
  std::string pending_;  // at most three bytes between calls
};

/// Unicode's White_Space property.
bool is_white_space(char32_t code_point);

/// General categories Nd, Nl and No.
bool is_numeric(char32_t code_point);

/// General categories M*.
bool is_mark(char32_t code_point);

/// General categories P*, and all punctuation and symbols of ASCII.
bool is_punctuation(char32_t code_point);

/// UTS 18's word characters: Alphabetic, M*, Nd, Pc, and the two joiners.
bool is_word(char32_t code_point);

/// True for marks, and characters that decompose or compose, which came after Unicode 9.0. Hugging
/// Face normalises with the tables of 9.0, so to tokenizers these are plain characters: what a
/// model was trained on is such text.
bool is_younger_than_normalization(char32_t code_point);

}  // namespace hyb
