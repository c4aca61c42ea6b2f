#include "core/text/split.h"

#include <doctest/doctest.h>

using namespace hyb;

namespace {

std::string pieces(const Splitter& splitter, const std::string& text) {
  std::string out;
  splitter.split(text, [&](std::size_t begin, std::size_t end) {
    out += "[" + text.substr(begin, end - begin) + "]";
  });
  return out;
}

std::string split(SplitBehavior behavior, bool invert, const std::string& text) {
  return pieces(Splitter(Pattern("-", "f"), behavior, invert), text);
}

}  // namespace

TEST_SUITE("core/text/split") {
  TEST_CASE("the five behaviours") {
    const std::string text = "the-final--countdown-";
    CHECK(split(SplitBehavior::removed, false, text) == "[the][final][countdown]");
    CHECK(split(SplitBehavior::isolated, false, text) == "[the][-][final][-][-][countdown][-]");
    CHECK(split(SplitBehavior::merged_with_previous, false, text) ==
          "[the-][final-][-][countdown-]");
    CHECK(split(SplitBehavior::merged_with_next, false, text) == "[the][-final][-][-countdown][-]");
    CHECK(split(SplitBehavior::contiguous, false, text) == "[the][-][final][--][countdown][-]");
  }

  TEST_CASE("inverted, what does not match is what the text is split at") {
    const std::string text = "-ab--c";
    CHECK(split(SplitBehavior::removed, true, text) == "[-][-][-]");
    CHECK(split(SplitBehavior::merged_with_previous, true, text) == "[-ab][-][-c]");
    CHECK(split(SplitBehavior::merged_with_next, true, text) == "[-][ab-][-][c]");
    CHECK(split(SplitBehavior::contiguous, true, text) == "[-][ab][--][c]");
  }

  TEST_CASE("characters of a class") {
    const auto digit = [](char32_t c) { return c >= '0' && c <= '9'; };
    CHECK(pieces(Splitter(digit, SplitBehavior::isolated), "é12x3") == "[é][1][2][x][3]");
    CHECK(pieces(Splitter(digit, SplitBehavior::contiguous), "é12x3") == "[é][12][x][3]");
    CHECK(pieces(Splitter(digit, SplitBehavior::isolated), "").empty());
  }
}
