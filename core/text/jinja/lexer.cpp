#include "core/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include "core/base/error.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

struct Number {
  std::size_t bytes = 0;
  bool real = false;
  std::int64_t integer_value = 0;
  double real_value = 0;
  std::string problem{};  ///< empty if the number is good
};

/// Length of the digits at `at`; 0 if there is none.
std::size_t digits_length(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_not_of("0123456789", at);
  return std::min(end, text.size()) - std::min(at, text.size());
}

/// Length of the real number at the start of the text; 0 if it is only an integer.
std::size_t real_length(std::string_view text) {
  std::size_t end = digits_length(text, 0);
  bool real = false;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = digits_length(text, end + 1);
    if (fraction > 0) {
      end += 1 + fraction;
      real = true;
    }
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t digits = digits_length(text, exponent);
    if (digits > 0) {
      end = exponent + digits;
      real = true;
    }
  }
  return real ? end : 0;
}

Number read_integer(std::string_view text) {
  Number number;
  // A leading zero is a number of its own.
  number.bytes = text[0] == '0' ? 1 : digits_length(text, 0);
  const std::string_view digits = text.substr(0, number.bytes);
  const auto result = std::from_chars(digits.begin(), digits.end(), number.integer_value);
  if (result.ec != std::errc{}) {
    number.problem = "the integer " + std::string(digits) + " is over 64 bits";
  }
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
  while (end < text.size() && end < at + 3 && text[end] >= '0' && text[end] <= '7') {
    value = value * 8 + static_cast<char32_t>(text[end++] - '0');
  }
  return {end - at, value};
}

Escape read_escape(std::string_view text, std::size_t at, std::string& problem) {
  constexpr std::string_view letters = "\\'\"abtnvfr", meanings = "\\'\"\a\b\t\n\v\f\r";
  const std::size_t known = letters.find(text[at]);
  if (known != letters.npos) return {1, static_cast<char32_t>(meanings[known])};
  if (text[at] != 'x' && text[at] != 'u' && text[at] != 'U') return read_octal(text, at);
  const std::size_t digits = text[at] == 'x' ? 2 : (text[at] == 'u' ? 4 : 8);
  Escape escape{digits + 1, 0};
  if (!read_hex(text, at + 1, digits, escape.value)) {
    problem = "a truncated escape in a string";
  } else if (escape.value > 0x10FFFF || (escape.value >= 0xD800 && escape.value < 0xE000)) {
    problem = "an escape in a string is no Unicode character";
  }
  return escape;
}

/// Reads the number at the start of `text`: 12, 1.5, 2e3. Without `real_allowed` (after a dot, as
/// in items.0.5), only an integer.
Number read_number_literal(std::string_view text, bool real_allowed) {
  const std::size_t length = real_allowed ? real_length(text) : 0;
  if (length == 0) return read_integer(text);
  Number number;
  number.bytes = length;
  number.real = true;
  const std::string_view digits = text.substr(0, length);
  const auto result = std::from_chars(digits.begin(), digits.end(), number.real_value);
  if (result.ec != std::errc{}) {
    number.problem = "the number " + std::string(digits) + " is out of range";
  }
  return number;
}

/// The content of a string literal with Python's escapes resolved; `problem` describes an error.
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
    append_utf8(out, escape.value);
    at += 1 + escape.bytes;
  }
  return out;
}

/// Length of the identifier at the start of `text`; 0 if there is none.
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

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(decode_character(text, at))) at += character_bytes(text, at);
  return at;
}

std::string_view without_trailing_spaces(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const bool space = is_space(decode_character(text, at));
    at += character_bytes(text, at);
    if (!space) end = at;
  }
  return text.substr(0, end);
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view source_name)
      : source_(source), source_name_(source_name) {}

  std::vector<Lexeme> read() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::end, at_);
    return std::move(lexemes_);
  }

 private:
  [[noreturn]] void fail(std::size_t place, const std::string& text) const {
    throw Error(ErrorKind::model,
                where(source_name_, source_, static_cast<Place>(place)) + "template: " + text);
  }

  void add(TokenKind kind, std::size_t place, std::string_view text = {}) {
    lexemes_.push_back(
        {.kind = kind, .place = static_cast<Place>(place), .text = std::string(text)});
  }

  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  /// Text up to the next tag, comment or {{, and the opening delimiter.
  void read_data() {
    const std::size_t begin = at_;
    std::size_t open = begin;
    do {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        add(TokenKind::data, begin, source_.substr(begin));
        at_ = source_.size();
        return;
      }
      ++open;
    } while (source_[open] != '%' && source_[open] != '{' && source_[open] != '#');
    const char opened = source_[open];
    std::string_view data = source_.substr(begin, open - 1 - begin);
    at_ = open + 1;
    const char sign = at_ < source_.size() ? source_[at_] : '\0';
    if (sign == '-') {
      data = without_trailing_spaces(data);
    } else if (sign != '+' && opened != '{') {
      data = without_indent(data);
    }
    if (sign == '-' || sign == '+') ++at_;
    if (!data.empty()) add(TokenKind::data, begin, data);
    if (opened == '#')
      read_comment(open - 1);
    else if (opened == '{')
      read_inside(open - 1, TokenKind::print_begin);
    else
      read_inside(open - 1, TokenKind::tag_begin);
  }

  /// lstrip_blocks: removes the spaces between the start of the line and the tag.
  std::string_view without_indent(std::string_view data) const {
    const std::size_t line = data.rfind('\n') + 1;  // std::string_view::npos + 1 is 0
    if (line == 0 && !at_line_start_) return data;
    return skip_spaces(data, line) == data.size() ? data.substr(0, line) : data;
  }

  /// Skips "-%}" with the spaces after it, "+%}", or "%}" and one line end.
  bool close_tag(std::string_view closing, bool plus_allowed, bool trim_line) {
    const std::size_t begin = at_;
    const char sign = at_ < source_.size() ? source_[at_] : '\0';
    const bool signed_ = sign == '-' || (sign == '+' && plus_allowed);
    if (signed_) ++at_;
    if (!looking_at(closing)) {
      at_ = begin;
      return false;
    }
    at_ += closing.size();
    if (sign == '-')
      at_ = skip_spaces(source_, at_);
    else if (!signed_ && trim_line && at_ < source_.size() && source_[at_] == '\n')
      ++at_;
    at_line_start_ = source_[at_ - 1] == '\n';
    return true;
  }

  void read_comment(std::size_t place) {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string_view::npos) fail(place, "a comment is not closed");
    const char before = close > at_ ? source_[close - 1] : '\0';
    at_ = before == '-' || before == '+' ? close - 1 : close;
    close_tag("#}", true, true);
  }

  void read_inside(std::size_t place, TokenKind opening) {
    const bool print = opening == TokenKind::print_begin;
    const std::string_view closing = print ? "}}" : "%}";
    add(opening, place);
    brackets_.clear();
    while (true) {
      at_ = skip_spaces(source_, at_);
      if (at_ >= source_.size()) fail(place, print ? "{{ is not closed" : "a tag is not closed");
      const std::size_t here = at_;
      if (brackets_.empty() && close_tag(closing, !print, !print)) {
        add(print ? TokenKind::print_end : TokenKind::tag_end, here);
        return;
      }
      read_lexeme();
    }
  }

  void read_lexeme() {
    const char first = source_[at_];
    if (first >= '0' && first <= '9') return read_number();
    if (first == '\'' || first == '"') return read_text();
    const std::size_t name_bytes = name_length(source_.substr(at_));
    if (name_bytes > 0) {
      add(TokenKind::name, at_, source_.substr(at_, name_bytes));
      at_ += name_bytes;
      return;
    }
    read_symbol();
  }

  void read_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const Number number = read_number_literal(source_.substr(at_), !after_dot);
    if (!number.problem.empty()) fail(at_, number.problem);
    lexemes_.push_back({.kind = number.real ? TokenKind::real : TokenKind::integer,
                        .place = static_cast<Place>(at_),
                        .integer = number.integer_value,
                        .real = number.real_value});
    at_ += number.bytes;
  }

  void read_text() {
    const std::size_t begin = at_;
    const char quote = source_[at_++];
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) fail(begin, "a string is not closed");
    std::string problem;
    add(TokenKind::text, begin,
        resolve_escapes(source_.substr(begin + 1, at_ - begin - 1), problem));
    if (!problem.empty()) fail(begin, problem);
    ++at_;
  }

  void read_symbol() {
    static constexpr std::array<std::string_view, 26> symbols{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(symbols.begin(), symbols.end(),
                                     [&](std::string_view symbol) { return looking_at(symbol); });
    if (found == symbols.end()) {
      fail(at_, "unexpected character '" +
                    std::string(source_.substr(at_, character_bytes(source_, at_))) + "'");
    }
    balance((*found)[0]);
    add(TokenKind::symbol, at_, *found);
    at_ += found->size();
  }

  void balance(char bracket) {
    static constexpr std::string_view opening = "([{";
    static constexpr std::string_view closing = ")]}";
    if (const auto which = opening.find(bracket); which != std::string_view::npos)
      brackets_ += closing[which];
    if (closing.find(bracket) == std::string_view::npos) return;
    if (brackets_.empty()) fail(at_, std::string("unexpected '") + bracket + "'");
    if (brackets_.back() != bracket) {
      fail(at_, std::string("unexpected '") + bracket + "', expected '" + brackets_.back() + "'");
    }
    brackets_.pop_back();
  }

  std::string_view source_;
  std::string_view source_name_;
  std::size_t at_ = 0;
  bool at_line_start_ = true;
  std::string brackets_;
  std::vector<Lexeme> lexemes_;
};

}  // namespace

std::string where(std::string_view source_name, std::string_view source, Place place) {
  const std::string_view before = source.substr(0, place);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t column = count_characters(before.substr(before.rfind('\n') + 1)) + 1;
  return std::string(source_name) + ": line " + std::to_string(line) + ", column " +
         std::to_string(column) + ": ";
}

std::string normalise_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
      continue;
    }
    out += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Lexeme> read_lexemes(std::string_view source, std::string_view source_name) {
  return Lexer(source, source_name).read();
}

}  // namespace hyb::jinja
