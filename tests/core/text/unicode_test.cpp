#include <random>

#include <doctest/doctest.h>

#include "core/text/unicode.h"

namespace text_unicode_test {

using namespace hyb;
using Kind = Utf8Unit::Kind;

TEST_SUITE("core/text/utf8") {
  TEST_CASE("every code point is read from both ends") {
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

  TEST_CASE("ill-formed text is split into maximal subparts") {
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

namespace {

std::string lossy(const std::string& bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    if (unit.kind == Utf8Unit::Kind::character) {
      out += bytes.substr(at, unit.bytes);
    } else {
      out += replacement_character;
    }
    at += unit.bytes;
  }
  return out;
}

}  // namespace

TEST_SUITE("core/text/utf8_stream") {
  TEST_CASE("chunks do not matter, and no character is split") {
    std::mt19937 random(5);
    const std::string parts[] = {"a",        "é",        "€",    "😀",       "\xFF",
                                 "\xE2\x82", "\xF0\x9F", "\x80", "\xED\xA0"};
    for (int round = 0; round < 3000; ++round) {
      std::string bytes;
      for (unsigned i = 0, n = random() % 8; i < n; ++i)
        bytes += parts[random() % std::size(parts)];
      Utf8Stream stream;
      std::string out;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t size = 1 + random() % 4;
        stream.push(std::string_view(bytes).substr(at, size), out);
        REQUIRE(is_well_formed(out));
        at += size;
      }
      stream.flush(out);
      REQUIRE(out == lossy(bytes));
    }
  }

  TEST_CASE("a character is emitted as soon as it is complete") {
    Utf8Stream stream;
    std::string out;
    stream.push("\xF0\x9F\x98", out);
    CHECK(out.empty());
    stream.push("\x80", out);
    CHECK(out == "😀");
    stream.flush(out);
    CHECK(out == "😀");
  }
}

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

TEST_SUITE("core/text/unicode_age") {
  TEST_CASE("only characters added after Unicode 9 are newer") {
    CHECK(is_newer_than_normalization(0x1FBF2));        // segmented digit two, 13.0
    CHECK(is_newer_than_normalization(0x32FF));         // square era name Reiwa, 12.1
    CHECK(is_newer_than_normalization(0x7FD));          // 11.0
    CHECK_FALSE(is_newer_than_normalization(0x301));    // 1.1
    CHECK_FALSE(is_newer_than_normalization(0x1E94A));  // Adlam nukta, 9.0
    CHECK_FALSE(is_newer_than_normalization(0xAC00));
    CHECK_FALSE(is_newer_than_normalization(0x10FFFF));
  }
}

}  // namespace text_unicode_test
