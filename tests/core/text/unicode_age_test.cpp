#include "core/text/unicode_age.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/unicode_age") {
  TEST_CASE("only what came after Unicode 9 is younger") {
    CHECK(is_younger_than_normalization(0x1FBF2));        // segmented digit two, 13.0
    CHECK(is_younger_than_normalization(0x32FF));         // square era name Reiwa, 12.1
    CHECK(is_younger_than_normalization(0x7FD));          // 11.0
    CHECK_FALSE(is_younger_than_normalization(0x301));    // 1.1
    CHECK_FALSE(is_younger_than_normalization(0x1E94A));  // Adlam nukta, 9.0
    CHECK_FALSE(is_younger_than_normalization(0xAC00));
    CHECK_FALSE(is_younger_than_normalization(0x10FFFF));
  }
}
