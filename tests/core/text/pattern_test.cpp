#include "core/text/pattern.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/error_text.h"

namespace pattern_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

/// The matches of a pattern, in brackets, within the text.
std::string marked(const Pattern& pattern, const std::string& text) {
  std::string out;
  std::size_t done = 0;
  pattern.each_match(text, [&](std::size_t begin, std::size_t end) {
    out += text.substr(done, begin - done) + "[" + text.substr(begin, end - begin) + "]";
    done = end;
  });
  return out + text.substr(done);
}

std::string marked(const std::string& pattern, const std::string& text) {
  return marked(Pattern(pattern, "f"), text);
}

}  // namespace

TEST_SUITE("core/text/pattern") {
  TEST_CASE("matches come from left to right, as Oniguruma has them") {
    CHECK(marked("\\p{L}+", "ab 1é") == "[ab] 1[é]");
    CHECK(marked("\\s+(?!\\S)|\\s+", "a   b ") == "a[  ][ ]b[ ]");
    CHECK(marked("\\s", "\u180E\u200B\u3000\u0085") == "\u180E\u200B[\u3000][\u0085]");
    CHECK(marked("[\\p{L}&&[^\\p{Han}]]+", "ab字cd") == "[ab]字[cd]");
    CHECK(marked("\\p{Han}+", "々、字") == "[々]、[字]");  // the script, not its extensions
    CHECK(marked("\\d{1,3}+", "1234567") == "[1234567]");
    CHECK(marked("(?i:'s|'ll)", "'S 'ſ 'lL") == "['S] ['ſ] ['lL]");
    CHECK(marked("^a|b$", "a\nab\nb") == "[a]\n[a][b]\n[b]");
    CHECK(marked("(?m:a.b)|c.d", "a\nb c\nd") == "[a\nb] c\nd");
    CHECK(marked("\\w+", "a_1-Ⅷ") == "[a_1]-[Ⅷ]");
    CHECK(marked("\\d{1,3}(?=(?:\\d{3})*\\b)", "12345 1234567a") == "[12][345] 1234567a");
    CHECK(marked("\\b.", "é字 _") == "[é]字[ ][_]");
  }

  TEST_CASE("empty matches are between characters, never directly after a match") {
    CHECK(marked("x*", "axxb字") == "[]a[xx]b[]字[]");
    CHECK(marked("", "é") == "[]é[]");
    CHECK(marked("a*", "") == "[]");
  }

  TEST_CASE("a literal is matched exactly") {
    CHECK(marked(Pattern::literal("a.(b)\\[^$|?*+{}]", "f"), "a.(b)\\[^$|?*+{}] axb") ==
          "[a.(b)\\[^$|?*+{}]] axb");
  }

  TEST_CASE("a pattern that does not terminate in time is an error") {
    const Pattern pattern("(?:a+)+\\z", "f: split");
    const std::string text = std::string(60, 'a') + "b";
    const std::string error = model_error([&] { marked(pattern, text); });
    CHECK(contains(
        error,
        "f: split: the pattern \"(?:a+)+\\z\" exceeds its match limits on this text at byte 0"));
  }

  TEST_CASE("groups over long texts get a larger stack") {
    CHECK(marked("(?:a|b(?=c|a))+", std::string(30000, 'a')).size() == 30002);
  }

  TEST_CASE("what PCRE2 refuses is an error of the file") {
    CHECK(contains(model_error([] { Pattern("(?<=a+)b", "f"); }), "f: cannot use the pattern"));
    CHECK(contains(model_error([] { Pattern("[b-a]", "f"); }), "out of order"));
  }
}

}  // namespace pattern_test
