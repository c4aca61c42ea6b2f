#include "core/text/jinja/literals.h"

#include <charconv>

#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

bool is_digit_of(char c, int base) {
  const int lower = c | 0x20;
  int value = -1;
  if (c >= '0' && c <= '9')
    value = c - '0';
  else if (lower >= 'a' && lower <= 'f')
    value = lower - 'a' + 10;
  return value >= 0 && value < base;
}

/// Bytes of digits with single underscores between them; 0 if there is no digit at `at`.
std::size_t digits_length(std::string_view text, std::size_t at, int base) {
  std::size_t end = at;
  while (end < text.size()) {
    if (is_digit_of(text[end], base)) {
      ++end;
    } else if (end > at && text[end] == '_' && end + 1 < text.size() &&
               is_digit_of(text[end + 1], base)) {
      end += 2;
    } else {
      break;
    }
  }
  return end - at;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

/// Bytes of a real number's spelling; 0 if the text begins with an integer only.
std::size_t real_length(std::string_view text) {
  std::size_t end = digits_length(text, 0, 10);
  bool real = false;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = digits_length(text, end + 1, 10);
    if (fraction > 0) {
      end += 1 + fraction;
      real = true;
    }
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t digits = digits_length(text, exponent, 10);
    if (digits > 0) {
      end = exponent + digits;
      real = true;
    }
  }
  return real ? end : 0;
}

Number read_integer(std::string_view text) {
  int base = 10;
  std::size_t begin = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 10));
    const std::size_t first = text[2] == '_' ? 3 : 2;
    if (marked != 10 && digits_length(text, first, marked) > 0) {
      base = marked;
      begin = first;
    }
  }
  Number number;
  std::size_t length = digits_length(text, begin, base);
  if (base == 10 && text[0] == '0') {
    // A leading zero stands alone or with other zeros.
    length = 1;
    while (length < text.size() && (text[length] == '0')) ++length;
  }
  const std::string digits = without_underscores(text.substr(begin, length));
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), number.integer_value, base);
  if (result.ec != std::errc{}) number.problem = "the integer " + digits + " is over 64 bits";
  number.bytes = begin + length;
  return number;
}

/// Reads exactly `count` hexadecimal digits.
bool read_hex(std::string_view text, std::size_t at, std::size_t count, char32_t& value) {
  if (at + count > text.size()) return false;
  std::uint32_t read = 0;
  const char* end = text.data() + at + count;
  const auto result = std::from_chars(text.data() + at, end, read, 16);
  value = read;
  return result.ec == std::errc{} && result.ptr == end;
}

struct Escape {
  std::size_t bytes;  ///< after the backslash; 0 if it is no escape
  char32_t value;
};

Escape read_octal(std::string_view text, std::size_t at) {
  std::size_t end = at;
  char32_t value = 0;
  while (end < text.size() && end < at + 3 && is_digit_of(text[end], 8)) {
    value = value * 8 + static_cast<char32_t>(text[end++] - '0');
  }
  return {end - at, value};
}

Escape read_escape(std::string_view text, std::size_t at, std::string& problem) {
  switch (text[at]) {
    case '\\':
    case '\'':
    case '"':
      return {1, static_cast<char32_t>(text[at])};
    case 'a':
      return {1, 7};
    case 'b':
      return {1, 8};
    case 't':
      return {1, 9};
    case 'n':
      return {1, 10};
    case 'v':
      return {1, 11};
    case 'f':
      return {1, 12};
    case 'r':
      return {1, 13};
    case 'x':
    case 'u':
    case 'U':
      break;
    default:
      return read_octal(text, at);
  }
  const std::size_t digits = text[at] == 'x' ? 2 : (text[at] == 'u' ? 4 : 8);
  Escape escape{digits + 1, 0};
  if (!read_hex(text, at + 1, digits, escape.value)) {
    problem = "a truncated escape in a string";
  } else if (escape.value > 0x10FFFF || (escape.value >= 0xD800 && escape.value < 0xE000)) {
    problem = "an escape in a string is no Unicode character";
  }
  return escape;
}

}  // namespace

Number read_number_literal(std::string_view text, bool real_allowed) {
  const std::size_t length = real_allowed ? real_length(text) : 0;
  if (length == 0) return read_integer(text);
  Number number;
  number.bytes = length;
  number.real = true;
  const std::string digits = without_underscores(text.substr(0, length));
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), number.real_value);
  if (result.ec != std::errc{}) number.problem = "the number " + digits + " is out of range";
  return number;
}

std::string resolve_escapes(std::string_view inside, std::string& problem) {
  std::string out;
  out.reserve(inside.size());
  for (std::size_t at = 0; at < inside.size();) {
    if (inside[at] != '\\' || at + 1 >= inside.size()) {
      out += inside[at++];
      continue;
    }
    if (inside[at + 1] == '\n') {
      at += 2;
      continue;
    }
    const Escape escape = read_escape(inside, at + 1, problem);
    if (!problem.empty()) return out;
    if (escape.bytes == 0) {
      out += inside[at++];
      continue;
    }
    append_character(out, escape.value);
    at += 1 + escape.bytes;
  }
  return out;
}

std::size_t name_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const char32_t c = decode_character(text, at);
    const bool start = c == '_' || is_alphabetic(c);
    if (!start && (at == 0 || !is_numeric(c))) break;
    at += character_bytes(text, at);
  }
  return at;
}

}  // namespace hyb::jinja
