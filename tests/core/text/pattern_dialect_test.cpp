#include "core/text/pattern_dialect.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string translated(const std::string& pattern) { return translate_pattern(pattern, "f"); }

std::string error_of(const std::string& pattern) {
  return model_error([&] { translate_pattern(pattern, "f"); });
}

}  // namespace

TEST_SUITE("core/text/pattern_dialect") {
  TEST_CASE("what is the same stays as it is") {
    CHECK(translated("a|b*?c++(?:d)(?=e)(?<!f)") == "a|b*?c++(?:d)(?=e)(?<!f)");
    CHECK(translated("a{2,3}?b{4}") == "a{2,3}?b{4}");
    CHECK(translated("é字 #") == "é字 #");
  }

  TEST_CASE("intervals are Ruby's") {
    CHECK(translated("a{1,3}+") == "(?:a{1,3})+");
    CHECK(translated("[ab]{2}?") == "(?:[ab]{2})?");
    CHECK(translated("(?:ab){,3}") == "(?:ab){0,3}");
    CHECK(translated("a{x}") == "a\\{x\\}");
  }

  TEST_CASE("options reach over the alternatives behind them") {
    CHECK(translated("a(?i)b|c") == "a(?i:b|c)");
    CHECK(translated("(x(?m).|y)z") == "(?:x(?s:.|y))z");
    CHECK(translated("(?i:'s|'t)") == "(?i:'s|'t)");
    CHECK(translated("(?<name>a)(?#note)") == "(?:a)");
  }

  TEST_CASE("escapes") {
    CHECK(translated("\\v\\h\\H\\d") == "\\x0b[0-9a-fA-F][^0-9a-fA-F][\\p{Nd}]");
    CHECK(translated("\\p{^L}\\P{^L}") == "[^\\p{L}][\\p{L}]");
    CHECK(contains(translated("\\s"), "\\x{3000}"));
    CHECK_FALSE(contains(translated("\\s"), "180e"));
    CHECK(contains(translated("\\bx"), "(?<="));
  }

  TEST_CASE("what cannot be translated is an error that names it") {
    CHECK(contains(error_of("(a)\\1"), "\\1 is not supported"));
    CHECK(contains(error_of("\\k<a>"), "\\k"));
    CHECK(contains(error_of("\\Gx"), "\\G"));
    CHECK(contains(error_of("\\X"), "\\X"));
    CHECK(contains(error_of("\\012"), "\\0"));
    CHECK(contains(error_of("(?~a)"), "(?~"));
    CHECK(contains(error_of("(?(1)a)"), "(?("));
    CHECK(contains(error_of("(?x) a"), "(?x"));
    CHECK(contains(error_of("(*UTF)a"), "(*"));
    CHECK(contains(error_of("(?i:ß)"), "not ASCII"));
    CHECK(contains(error_of("(?i:Fi)"), "fi"));
    CHECK(contains(error_of("(?i:\\p{L})"), "property"));
    CHECK(contains(error_of("(?i:[\\p{L}])"), "plain ASCII"));
    CHECK(contains(error_of("a**"), "quantifier"));
    CHECK(contains(error_of("+a"), "quantifier"));
    CHECK(contains(error_of("(a"), "not closed"));
    CHECK(contains(error_of("a)"), "without its group"));
    CHECK(contains(error_of("(?i"), "not closed"));
    CHECK(contains(error_of("a\\"), "backslash"));
    CHECK(contains(error_of(std::string(1000, '(')), "too deep"));
    CHECK(contains(error_of(std::string(100000, 'a')), "65536"));
    CHECK(contains(error_of("\xFF"), "UTF-8"));
  }
}
