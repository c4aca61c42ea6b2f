#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/jinja/ast.h"

namespace hyb::jinja {

enum class TokenKind : std::uint8_t {
  data,         ///< template text between tags, whitespace control applied
  print_begin,  ///< {{
  print_end,
  tag_begin,  ///< {%
  tag_end,
  name,
  text,  ///< a string literal, escapes resolved
  integer,
  real,
  symbol,  ///< an operator or bracket
  end,
};

struct Lexeme {
  TokenKind kind;
  Place place;
  std::string text{};  ///< of data, name, text and symbol
  std::int64_t integer = 0;
  double real = 0;
};

/// "source_name: line L, column C: ", both from 1, columns in characters.
std::string where(std::string_view source_name, std::string_view source, Place place);

/// Replaces every line end by "\n" and removes the last one. Places are offsets into the result.
std::string normalise_lines(std::string_view source);

/// Splits a normalised source into lexemes; the last one is `end`. Comments are dropped.
/// trim_blocks and lstrip_blocks are on. Throws Error(model).
std::vector<Lexeme> read_lexemes(std::string_view source, std::string_view source_name);

}  // namespace hyb::jinja
