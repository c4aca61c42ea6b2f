#include "core/text/utf8.h"

#include <doctest/doctest.h>

using namespace hyb;
using Kind = Utf8Unit::Kind;

TEST_SUITE("core/text/utf8") {
  TEST_CASE("every code point comes back from both ends") {
    for (char32_t point = 0; point < 0x110000; ++point) {
      if (point >= 0xD800 && point <= 0xDFFF) continue;
      std::string text = "x";
      append_utf8(text, point);
      const Utf8Unit unit = read_utf8(text, 1);
      std::size_t at = 1;
      REQUIRE(unit.kind == Kind::character);
      REQUIRE(unit.code_point == point);
      REQUIRE(unit.bytes == text.size() - 1);
      REQUIRE(next_code_point(text, at) == point);
      REQUIRE(at == text.size());
      REQUIRE(code_point_before(text, text.size()) == point);
      REQUIRE(is_well_formed(text));
    }
  }

  TEST_CASE("what is ill-formed is cut into maximal subparts") {
    const auto unit = [](const std::string& text) { return read_utf8(text, 0); };
    CHECK(unit("\x80").kind == Kind::ill_formed);
    CHECK(unit("\xC0\x80").bytes == 1);          // overlong
    CHECK(unit("\xE0\x80\x80").bytes == 1);      // overlong
    CHECK(unit("\xED\xA0\x80").bytes == 1);      // a surrogate
    CHECK(unit("\xF4\x90\x80\x80").bytes == 1);  // past U+10FFFF
    CHECK(unit("\xE2\x82x").kind == Kind::ill_formed);
    CHECK(unit("\xE2\x82x").bytes == 2);
    CHECK(unit("\xF0\x9F\x98x").bytes == 3);
    CHECK(unit("\xF0\x9F\x98").kind == Kind::incomplete);
    CHECK(unit("\xF5").kind == Kind::ill_formed);
    CHECK_FALSE(is_well_formed("abcdefgh\xFFijklmnop"));
    CHECK_FALSE(is_well_formed("abcdefghijklm\xC3"));
    CHECK(is_well_formed(""));
  }

  TEST_CASE("an excerpt is short and cuts no character") {
    CHECK(excerpt("é") == "é");
    CHECK(excerpt(std::string(99, 'a') + "éb") == std::string(99, 'a') + "...");
    CHECK(excerpt(std::string(5000, 'a')).size() == 103);
  }
}
