#include "app/ui/text_width.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace hyb::app;

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
