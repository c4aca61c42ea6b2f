#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "app/ui/text.h"
#include "core/text/unicode.h"

namespace text_test {

using namespace hyb;
using namespace hyb::app;

namespace {

std::string in_pieces(const std::string& text, std::mt19937& random) {
  Sanitizer sanitizer;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t count = 1 + random() % 5;
    out += sanitizer.push(std::string_view(text).substr(at, count));
    at += count;
  }
  return out + sanitizer.flush();
}

bool is_harmless(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    if (is_unsafe(next_code_point(text, at))) return false;
  }
  return true;
}

}  // namespace

TEST_SUITE("app/ui/sanitizer") {
  TEST_CASE("bytes as base64 (the examples of RFC 4648)") {
    const std::vector<std::string> expected = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                               "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(base64(std::string_view("foobar").substr(0, i)) == expected[i]);
    CHECK(base64("\xff\xfe") == "//4=");
  }

  TEST_CASE("plain text, line breaks, tabs and other scripts stay as they are") {
    const std::string text = "a\tb\nδ 漢字 שלום 👩‍👩‍👧 é\u200F\u00A0";
    CHECK(sanitized(text) == text);
  }

  TEST_CASE("escape sequences become visible text") {
    CHECK(sanitized("\x1b[31mred\x1b[0m") == "\uFFFD[31mred\uFFFD[0m");
    CHECK(sanitized("\x1b]0;title\x07") == "\uFFFD]0;title\uFFFD");
    CHECK(sanitized("\x1bP1$q\x1b\\") == "\uFFFDP1$q\uFFFD\\");
    CHECK(sanitized("\u009B31m\u009D0;t\u009C") == "\uFFFD31m\uFFFD0;t\uFFFD");
    CHECK(sanitized(std::string_view("\0\b\x7f", 3)) == "\uFFFD\uFFFD\uFFFD");
    CHECK(sanitized("a\u202Eb\u2066c\u2069") == "a\uFFFDb\uFFFDc\uFFFD");
  }

  TEST_CASE("a bare C1 byte is ill-formed, and gone") {
    CHECK(sanitized("\x9b"
                    "31m") == "\uFFFD31m");
    CHECK(sanitized("ab\xE2\x82") == "ab\uFFFD");
  }

  TEST_CASE("a carriage return goes before a line break and shows elsewhere") {
    CHECK(sanitized("a\r\nb\rc\r\r\n\r") == "a\nb\uFFFDc\uFFFD\n\uFFFD");
    CHECK(sanitized_line("a\r\nb\tc") == "a b c");
  }

  TEST_CASE("the result does not depend on the cuts, and is harmless") {
    std::mt19937 random(7);
    const std::string alphabet("\x1b[]0;m\r\n\t\x07\x9b\xc2\xe2\x80\xae\xf0\x9f\x98\x80 aé", 24);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (std::size_t i = random() % 40; i > 0; --i) text += alphabet[random() % alphabet.size()];
      const std::string whole = sanitized(text);
      REQUIRE(is_well_formed(whole));
      REQUIRE(is_harmless(whole));
      REQUIRE(in_pieces(text, random) == whole);
    }
  }
}

TEST_SUITE("app/ui/text_width") {
  TEST_CASE("columns are counted as terminals do") {
    CHECK(columns("") == 0);
    CHECK(columns("abc") == 3);
    CHECK(columns("漢字") == 4);
    CHECK(columns("e\u0301") == 1);
    CHECK(columns("😀") == 2);
    CHECK(columns("❤\uFE0F") == 2);
    CHECK(columns("🇩🇪") == 2);
    CHECK(columns("👩‍👩‍👧") == 2);
  }

  TEST_CASE("clusters stay whole") {
    const std::string text = "ae\u0301👩‍👩‍👧🇩🇪🇫🇷한";
    std::vector<std::size_t> ends;
    for (std::size_t at = 0; at < text.size();) ends.push_back(at = next_grapheme(text, at));
    CHECK(ends.size() == 6);
  }

  TEST_CASE("backwards finds the boundaries that forwards found") {
    const std::vector<std::string> characters = {"a", " ", "\u0301", "é",  "漢", "👩",  "\u200D",
                                                 "🇩", "🇪", "\r",     "\n", "ᄒ", "ᅡ", "ᆫ"};
    std::mt19937 random(3);
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (std::size_t i = random() % 60; i > 0; --i)
        text += characters[random() % characters.size()];
      std::vector<std::size_t> begins;
      for (std::size_t at = 0; at < text.size(); at = next_grapheme(text, at)) begins.push_back(at);
      std::size_t end = text.size();
      while (!begins.empty()) {
        REQUIRE(previous_grapheme(text, end) == begins.back());
        end = begins.back();
        begins.pop_back();
      }
    }
  }

  TEST_CASE("a text is cut between clusters to fit") {
    CHECK(cut_to_columns("abcdef", 6) == "abcdef");
    CHECK(cut_to_columns("abcdefg", 6) == "abc...");
    CHECK(cut_to_columns("漢字漢字", 6) == "漢...");
    CHECK(cut_to_columns("abcdef", 2) == "..");
    CHECK(cut_to_columns("abcdef", 0).empty());
    CHECK(cut_to_columns("abcdef", -5).empty());
  }
}

namespace {

/// Given in pieces of `bytes`, as characters allow.
std::string in_pieces(const std::string& text, std::size_t bytes, int columns) {
  WordWrap wrap;
  Utf8Stream characters;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += bytes) {
    std::string whole;
    characters.push(text.substr(at, bytes), whole);
    out += wrap.push(whole, columns);
  }
  return out + wrap.flush();
}

}  // namespace

TEST_SUITE("app/ui/wrap") {
  TEST_CASE("words wrap alike however they come") {
    const std::pair<std::string, std::string> cases[] = {
        {"one two three", "one two\nthree"},
        {"one two\n\nthree four five", "one two\n\nthree four\nfive"},
        {"0123456789", "0123456789"},
        {"0123456789 abc", "0123456789\nabc"},
        {"a 0123456789abcdef b", "a 0123456789abcdef b"},
        {"    code x", "    code x"},
        {"    code xyz", "    code\nxyz"},
        {"hübsche Wörter", "hübsche\nWörter"},
        {"漢字漢字漢字漢字", "漢字漢字漢\n字漢字"},
        {"ab 漢字漢字漢", "ab 漢字漢\n字漢"},
        {"eight ch e\u0301e\u0301", "eight ch\ne\u0301e\u0301"},
        {"x  \ny", "x  \ny"},
    };
    for (const auto& [text, expected] : cases) {
      CAPTURE(text);
      for (const std::size_t bytes : {1, 2, 5, 100}) {
        CAPTURE(bytes);
        CHECK(in_pieces(text, bytes, 10) == expected);
      }
    }
  }

  TEST_CASE("no line is longer than the terminal, and nothing but white space is lost") {
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += std::string(static_cast<std::size_t>(1 + i * 7 % 11), 'a') + " ";
    text.pop_back();
    for (const int columns_max : {12, 33, 80}) {
      std::string out = in_pieces(text, 3, columns_max);
      for (std::size_t at = 0; at < out.size(); at = std::min(out.find('\n', at), out.size()) + 1) {
        CHECK(columns(out.substr(at, out.find('\n', at) - at)) <= columns_max);
      }
      std::replace(out.begin(), out.end(), '\n', ' ');
      CHECK(out == text);
    }
  }

  TEST_CASE("lists go on below their explanations, prose at the margin") {
    CHECK(wrapped("  name   what it is for", 20) == "  name   what it is\n         for");
    CHECK(wrapped("plain prose that wraps", 12) == "plain prose\nthat wraps");
    CHECK(wrapped("fits\nas it is\n", 80) == "fits\nas it is\n");
    CHECK(wrapped("one two", 12, 8) == "one\ntwo");
  }
}

}  // namespace text_test
