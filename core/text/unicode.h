#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyb {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

/// The character or the ill-formed sequence at a position of a text.
struct Utf8Unit {
  enum class Kind { character, ill_formed, incomplete };
  Kind kind;
  /// Length of the character, or of the maximal subpart that one U+FFFD replaces (Unicode 3.9,
  /// D93b).
  std::size_t bytes;
  char32_t code_point;  ///< U+FFFD unless a character
};

/// Reads the unit at byte `at` < text.size(). `incomplete`: the text ends within a character.
Utf8Unit read_utf8(std::string_view text, std::size_t at);

/// Reads a character of well-formed text and moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// Reads the character of well-formed text that ends at byte `at` > 0.
char32_t code_point_before(std::string_view text, std::size_t at);

void append_utf8(std::string& text, char32_t code_point);

bool is_well_formed(std::string_view text);

/// The start of a well-formed text for an error message, with "..." if there is more.
std::string excerpt(std::string_view text);

/// Turns bytes that arrive in arbitrary chunks into well-formed UTF-8, in whole characters. Each
/// ill-formed maximal subpart becomes U+FFFD, independent of the chunks.
class Utf8Stream {
 public:
  /// Appends all complete characters to `out`.
  void push(std::string_view bytes, std::string& out);

  /// Appends U+FFFD for a remaining incomplete character, if any.
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

/// Marks, and characters that decompose or compose, that were added after Unicode 9.0. Hugging Face
/// normalises with the tables of 9.0, so tokenizers treat them as plain characters, and models were
/// trained on such text.
bool is_newer_than_normalization(char32_t code_point);

}  // namespace hyb
