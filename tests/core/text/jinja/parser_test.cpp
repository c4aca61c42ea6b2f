#include "core/text/jinja/parser.h"

#include <doctest/doctest.h>

#include <random>

#include "core/base/error.h"

namespace parser_test {

using namespace hyb;
using namespace hyb::jinja;

namespace {

std::string error_of(std::string_view source) {
  try {
    parse_template(source, "file");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::model);
    return error.what();
  }
  return "";
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST_SUITE("core/text/jinja/parser") {
  TEST_CASE("syntax errors name line and column") {
    CHECK(error_of("x\n{% if a %}\n{% endfor %}").starts_with("file: line 3, column 4: "));
    CHECK(error_of("{{ a b }}").starts_with("file: line 1, column 6: "));
    CHECK(error_of("{% nonsense %}").find("unknown tag 'nonsense'") != std::string::npos);
    CHECK(error_of("{% for x in y %}").find("'endfor' is missing") != std::string::npos);
    CHECK(error_of("{% raw %}x{% endraw %}").find("unknown tag 'raw'") != std::string::npos);
    CHECK(error_of("{{ f(**x) }}").find("unexpected '**'") != std::string::npos);
    for (const char* number : {"0x1F", "1_000", "007"}) {
      CHECK(error_of(std::string("{{ ") + number + " }}").find("expected '}}'") !=
            std::string::npos);
    }
    CHECK(error_of("\xFF").find("UTF-8") != std::string::npos);
  }

  TEST_CASE("nesting bombs are refused, whichever way they nest") {
    const int deep = 100'000;
    for (const std::string& bomb : {"{{ " + repeated("(", deep),
                                    "{{ " + repeated("[", deep),
                                    "{{ " + repeated("{1:", deep),
                                    "{{ " + repeated("not ", deep),
                                    "{{ " + repeated("-", deep),
                                    "{{ " + repeated("x(", deep),
                                    "{{ " + repeated("x[", deep),
                                    "{{ x" + repeated(".a", deep) + " }}",
                                    "{{ x" + repeated("|a", deep) + " }}",
                                    "{{ x" + repeated("()", deep) + " }}",
                                    "{{ 1" + repeated("+1", deep) + " }}",
                                    "{{ 1" + repeated("*1", deep) + " }}",
                                    "{{ 1" + repeated(" or 1", deep) + " }}",
                                    "{{ 1" + repeated(" if 1", deep) + " }}",
                                    "{{ 1" + repeated(" if 1 else 1", deep) + " }}",
                                    repeated("{% if 1 %}", deep),
                                    repeated("{% for x in y %}", deep),
                                    repeated("{% macro m() %}", deep),
                                    "{{ 1" + repeated(" is x", deep) + " }}",
                                    "{% set " + repeated("(", deep),
                                    repeated("{% set x %}", deep)}) {
      CAPTURE(bomb.substr(0, 30));
      CHECK(error_of(bomb) != "");
    }
  }

  TEST_CASE("what is wide and not deep is allowed") {
    CHECK(error_of("{{ 'a'" + repeated(" ~ 'a'", 20'000) + " }}") == "");
    CHECK(error_of("{{ [" + repeated("1,", 20'000) + "] }}") == "");
    CHECK(error_of("{% if 0 %}" + repeated("{% elif 0 %}", 20'000) + "{% endif %}") == "");
    CHECK(error_of("{{ 'a'" + repeated(" + 'a'", 400) + " }}") == "");
  }

  TEST_CASE("random mixtures of lexemes are parsed or refused, never worse") {
    static constexpr const char* words[] = {
        "{{",       "}}",    "{%",      "%}",         " if ", " else ", " endif ", " for ", " in ",
        " endfor ", " set ", " x ",     "(",          ")",    "[",      "]",       "{",     "}",
        ":",        ",",     "|",       ".",          "=",    "+",      "-",       " is ",  " not ",
        "'s'",      "1",     " macro ", " endmacro ", "{#",   "#}",     "\n"};
    std::mt19937 random(3);
    int parsed = 0;
    for (int round = 0; round < 20'000; ++round) {
      std::string source;
      for (std::size_t i = random() % 12; i > 0; --i) source += words[random() % std::size(words)];
      CAPTURE(source);
      try {
        parse_template(source, "t");
        ++parsed;
      } catch (const Error& error) {
        REQUIRE(error.kind() == ErrorKind::model);
      }
    }
    CHECK(parsed > 1000);
  }
}

}  // namespace parser_test
