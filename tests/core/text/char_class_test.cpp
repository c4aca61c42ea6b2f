#include "core/text/char_class.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/char_class") {
  TEST_CASE("a plain set is one class") {
    CHECK(write_char_set(set_of("a-z", false)) == "[a-z]");
    CHECK(write_char_set(set_of("a-z", true)) == "[^a-z]");
  }

  TEST_CASE("sets nest, and what needs no nesting is made flat") {
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

  TEST_CASE("names of properties do not depend on case, spaces and underscores") {
    CHECK(items_of_property("L") == "\\p{L}");
    CHECK(items_of_property("Upper-case_ letter") == "\\p{Lu}");
    CHECK(items_of_property("Han") == "\\p{sc:han}");
    CHECK(items_of_property("alpha") == "\\p{Alphabetic}");
    CHECK(items_of_property("Klingon").empty());
    CHECK(items_of_posix("alnum") == "\\p{Alphabetic}\\p{Nd}");
    CHECK(items_of_posix("letter").empty());
    CHECK(items_of_escape('d') == "\\p{Nd}");
    CHECK(items_of_escape('q').empty());
  }
}
