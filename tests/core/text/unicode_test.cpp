#include "core/text/unicode.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/unicode") {
  TEST_CASE("white space is the property of 25 characters") {
    int count = 0;
    for (char32_t point = 0; point < 0x110000; ++point) count += is_white_space(point);
    CHECK(count == 25);
    CHECK(is_white_space(U'\u3000'));
    CHECK_FALSE(is_white_space(U'\u180E'));
    CHECK_FALSE(is_white_space(U'\u200B'));
  }

  TEST_CASE("classes of single characters") {
    for (const char32_t point : U"7٣½Ⅷ〇²") {
      if (point) CHECK(is_numeric(point));
    }
    CHECK_FALSE(is_numeric(U'a'));
    CHECK_FALSE(is_numeric(U'十'));
    for (const char32_t point : U"!$^~«。_") {
      if (point) CHECK(is_punctuation(point));
    }
    CHECK_FALSE(is_punctuation(U'€'));
    CHECK(is_mark(U'\u0301'));
    CHECK(is_mark(U'\u0903'));
    CHECK_FALSE(is_mark(U'a'));
    for (const char32_t point : U"aé_7字\u0301Ⅷⓐ\u200D") {
      if (point) CHECK(is_word(point));
    }
    CHECK_FALSE(is_word(U'-'));
    CHECK_FALSE(is_word(U'²'));
    CHECK_FALSE(is_word(U' '));
  }
}
