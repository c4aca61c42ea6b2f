#include <doctest/doctest.h>

#include "core/text/pattern_dialect.h"
#include "tests/support/error_text.h"

namespace pattern_dialect_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

TEST_SUITE("core/text/char_class") {
  TEST_CASE("a plain set is one class") {
    CHECK(write_char_set(set_of("a-z", false)) == "[a-z]");
    CHECK(write_char_set(set_of("a-z", true)) == "[^a-z]");
  }

  TEST_CASE("sets nest, and are flattened where possible") {
    CharSet set = set_of("a", false);
    set.parts[0].add("b", false);
    set.parts[0].add(set_of("c", false));
    set.parts[0].add("\\p{L}", true);
    CHECK(write_char_set(set) == "[abc\\P{L}]");
    set.parts[0].add("xy", true);
    CHECK(write_char_set(set) == "(?:[abc\\P{L}]|[^xy])");
  }

  TEST_CASE("an intersection looks ahead, its negation takes any other character") {
    CharSet set = set_of("a", false);
    set.parts.push_back({"b", {}});
    CHECK(write_char_set(set) == "(?:(?=[a])[b])");
    set.negated = true;
    CHECK(write_char_set(set) == "(?:(?!(?=[a])[b])[\\x{0}-\\x{10ffff}])");
  }

  TEST_CASE("names of properties do not depend on case") {
    CHECK(items_of_property("L") == "\\p{L}");
    CHECK(items_of_property("lu") == "\\p{Lu}");
    CHECK(items_of_property("Han") == "\\p{sc:han}");
    CHECK(items_of_property("Klingon").empty());
    CHECK(items_of_escape('d') == "\\p{Nd}");
    CHECK(items_of_escape('q').empty());
  }
}

namespace {

std::string written(const std::string& text) {
  PatternReader reader(text, "f");
  const ClassText read = read_class(reader);
  CHECK(reader.done());
  return write_char_set(read.set);
}

std::string class_error(const std::string& text) {
  return model_error([&] {
    PatternReader reader(text, "f");
    read_class(reader);
  });
}

}  // namespace

TEST_SUITE("core/text/class_reader") {
  TEST_CASE("members of a class") {
    CHECK(written("[a-z_]") == "[a-z\\x5f]");
    CHECK(written("[^é\\]]") == "[^é\\]]");
    CHECK(written("[a-]") == "[a\\x2d]");
    CHECK(written("[\\-x]") == "[\\-x]");
    CHECK(written("[\\n\\x41\\u00e9\\x{1F600}]") == "[\\n\\x{41}\\x{e9}\\x{1f600}]");
    CHECK(written("[\\p{L}\\P{Nd}]") == "[\\p{L}\\P{Nd}]");
    CHECK(written("[a[bc][^d]]") == "(?:[abc]|[^d])");
    CHECK(written("[\\p{L}&&[^\\p{Han}]]") == "(?:(?=[\\p{L}])(?:[^\\p{sc:han}]))");
  }

  TEST_CASE("what is malformed or unknown is an error with its position") {
    CHECK(contains(class_error("[a"), "a class is not closed (at byte 2 of \"[a\")"));
    CHECK(contains(class_error("[]a]"), "begins with ]"));
    CHECK(contains(class_error("[a&&]"), "empty part"));
    CHECK(contains(class_error("[&&a]"), "nothing before &&"));
    CHECK(contains(class_error("[\\p{Klingon}]"), "Klingon"));
    CHECK(contains(class_error("[[:alpha:]]"), "[:...:] is not supported"));
    CHECK(contains(class_error("[\\pL]"), "{name}"));
    CHECK(contains(class_error("[\\xFF]"), "write \\x{80}"));
    CHECK(contains(class_error("[\\x{110000}]"), "bad code point"));
    CHECK(contains(class_error("[\\uD800]"), "bad code point"));
    CHECK(contains(class_error("[\\u12"), "bad code point") +
              contains(class_error("[\\u12"), "four") ==
          1);
    CHECK(contains(class_error("[\\q]"), "\\q is not supported"));
    CHECK(contains(class_error("[a-[b]]"), "range"));
    CHECK(contains(class_error(std::string(40, '[')), "too deep"));
  }
}

namespace {

std::string translated(const std::string& pattern) { return translate_pattern(pattern, "f"); }

std::string error_of(const std::string& pattern) {
  return model_error([&] { translate_pattern(pattern, "f"); });
}

}  // namespace

TEST_SUITE("core/text/pattern_dialect") {
  TEST_CASE("common syntax is unchanged") {
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

  TEST_CASE("options cover the alternatives that follow") {
    CHECK(translated("a(?i)b|c") == "a(?i:b|c)");
    CHECK(translated("(x(?m).|y)z") == "(?:x(?s:.|y))z");
    CHECK(translated("(?i:'s|'t)") == "(?i:'s|'t)");
  }

  TEST_CASE("escapes") {
    CHECK(translated("\\v\\d\\D") == "\\x0b[\\p{Nd}][^\\p{Nd}]");
    CHECK(translated("\\p{^L}\\P{^L}") == "[^\\p{L}][\\p{L}]");
    CHECK(contains(translated("\\s"), "\\x{3000}"));
    CHECK_FALSE(contains(translated("\\s"), "180e"));
  }

  TEST_CASE("what cannot be translated is an error that names it") {
    CHECK(contains(error_of("(a)\\1"), "\\1 is not supported"));
    CHECK(contains(error_of("\\k<a>"), "\\k"));
    CHECK(contains(error_of("\\Gx"), "\\G"));
    CHECK(contains(error_of("\\X"), "\\X"));
    CHECK(contains(error_of("\\Bx"), "\\B is not supported"));
    CHECK(contains(error_of("(?<name>a)"), "\"(?<\" is not supported"));
    CHECK(contains(error_of("(?#note)"), "\"(?#\" is not supported"));
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

}  // namespace pattern_dialect_test
