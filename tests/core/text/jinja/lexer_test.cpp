#include "core/text/jinja/lexer.h"

#include <doctest/doctest.h>

#include "core/base/error.h"

namespace lexer_test {

using namespace hyb;
using namespace hyb::jinja;

namespace {

std::string kinds_of(std::string_view source) {
  std::string out;
  for (const Lexeme& lexeme : read_lexemes(source, "t")) {
    out += "D{}%%ntirs."[static_cast<std::size_t>(lexeme.kind)];
  }
  return out;
}

std::string error_of(std::string_view source) {
  try {
    read_lexemes(source, "file");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::model);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/text/jinja/lexer") {
  TEST_CASE("text, tags and their contents") {
    CHECK(kinds_of("a{{ x + 1 }}b") == "D{nsi}D.");
    CHECK(kinds_of("{% if 'a' ~ 1.5 %}") == "%ntsr%.");
    CHECK(kinds_of("{# {{ nothing }} #}") == ".");
    CHECK(kinds_of("{{ {'a': {}} }}") == "{stssss}.");
  }

  TEST_CASE("places survive whitespace control and line ends of any kind") {
    const std::string source = normalise_lines("a\r\nb\r  {%- if x -%}\n\n {{ y }}\n");
    CHECK(source == "a\nb\n  {%- if x -%}\n\n {{ y }}");
    const std::vector<Lexeme> lexemes = read_lexemes(source, "t");
    for (const Lexeme& lexeme : lexemes) {
      if (lexeme.kind != TokenKind::name) continue;
      CHECK(source.substr(lexeme.place, lexeme.text.size()) == lexeme.text);
    }
    CHECK(where("f", source, static_cast<Place>(source.find('y'))) == "f: line 5, column 5: ");
  }

  TEST_CASE("errors name the place") {
    CHECK(error_of("a\nb {{ 'x }}").starts_with("file: line 2, column 6: "));
    CHECK(error_of("{{ é $ }}").starts_with("file: line 1, column 6: "));
    CHECK(error_of("{# x").starts_with("file: line 1, column 1: "));
    CHECK(error_of("{{ (] }}").find("expected ')'") != std::string::npos);
    CHECK(error_of("{{ 99999999999999999999 }}").find("64 bits") != std::string::npos);
    CHECK(error_of("{{ '\\ud800' }}").find("no Unicode") != std::string::npos);
  }

  TEST_CASE("a template cut anywhere is lexed or refused, never worse") {
    const std::string source =
        "a {%- set x = {'k': [1, (2)]} -%}{{ x['k'][0] | f(\"\\n\") }}{# c #}";
    for (std::size_t size = 0; size <= source.size(); ++size) {
      try {
        const auto lexemes = read_lexemes(std::string_view(source).substr(0, size), "t");
        CHECK(lexemes.back().kind == TokenKind::end);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::model);
      }
    }
  }
}

}  // namespace lexer_test
