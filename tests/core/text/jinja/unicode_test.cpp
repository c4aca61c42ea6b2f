#include "core/text/jinja/unicode.h"

#include <doctest/doctest.h>

#include <random>

namespace jinja_unicode_test {

using namespace hyb::jinja;

namespace {

std::string random_text(std::mt19937& random, std::size_t bytes, int letters) {
  std::uniform_int_distribution<int> letter(0, letters - 1);
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + letter(random));
  return text;
}

}  // namespace

TEST_SUITE("core/text/jinja/unicode") {
  TEST_CASE("searches agree with the standard library's") {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text(random, random() % 40, 2);
      const std::string needle = random_text(random, random() % 5, 2);
      CAPTURE(text);
      CAPTURE(needle);
      CHECK(find_first(text, needle) == std::string_view(text).find(needle));
      const std::size_t from = random() % 45;
      CHECK(find_first(text, needle, from) == std::string_view(text).find(needle, from));
    }
  }

  TEST_CASE("a search that is quadratic when done naively ends") {
    const std::string text(4 << 20, 'a');
    const std::string needle = std::string(1 << 20, 'a') + "b";
    CHECK(find_first(text, needle) == std::string_view::npos);
  }

  TEST_CASE("bytes that are no UTF-8 are one character each") {
    CHECK(count_characters("a\xFF\xC3(\xF0\x9F\x98") == 7);
    CHECK(count_characters("h\xC3\xA9\xF0\x9F\x98\x80") == 3);
    CHECK(decode_character("\xED\xA0\x80", 0) == 0xFFFD);
  }

  TEST_CASE("encoding is the inverse of decoding") {
    for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string text;
      hyb::append_utf8(text, c);
      REQUIRE(decode_character(text, 0) == c);
      REQUIRE(character_bytes(text, 0) == text.size());
    }
  }
}

}  // namespace jinja_unicode_test
