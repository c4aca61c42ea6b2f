#include "core/constraint/regex.h"

#include <doctest/doctest.h>

#include <random>
#include <regex>

#include "tests/core/constraint/answers.h"
#include "tests/support/error_text.h"

namespace regex_test {

using namespace hyb;
using testing::contains;
using testing::error_text;

namespace {

std::string random_regex(std::mt19937& random, int depth) {
  const auto pick = [&](std::vector<std::string> of) { return of[random() % of.size()]; };
  switch (depth > 0 ? random() % 6 : 0) {
    case 1:
      return random_regex(random, depth - 1) + "|" + random_regex(random, depth - 1);
    case 2:
    case 3:
      return random_regex(random, depth - 1) + random_regex(random, depth - 1);
    case 4:
      return "(?:" + random_regex(random, depth - 1) + ")" +
             pick({"*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"});
    case 5:
      return "(" + random_regex(random, depth - 1) + ")";
    default:
      return pick(
          {"a", "b", "1", "[ab]", "[^a]", "\\d", "\\w", "\\s", "\\S", ".", "-", "\\.", "[1-3]"});
  }
}

bool whole(const std::string& regex, std::string_view text) {
  return allows(Grammar::from_regex(regex, "r"), text);
}

std::string refusal(const std::string& regex) {
  return error_text([&] { Grammar::from_regex(regex, "r"); });
}

}  // namespace

TEST_SUITE("core/constraint/regex") {
  TEST_CASE("sets of characters leave out the other symbols of a set") {
    const SymbolSet all = SymbolSet().complement();
    const SymbolSet mixed({{'a', 'c'},
                           {first_byte + '"', first_byte + '"'},
                           {first_byte + 'n', first_byte + 'z'},
                           {first_rule, first_rule + 2}});
    CHECK(mixed.both(all) == SymbolSet({{'a', 'c'}}));
    CHECK(mixed.complement() == SymbolSet({{0, 'a' - 1}, {'d', SymbolSet::last}}));
    CHECK(SymbolSet({{'a', first_byte + 9}}).complement() == SymbolSet({{0, 'a' - 1}}));
  }

  TEST_CASE("random expressions agree with the standard library") {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
      const std::string regex = random_regex(random, 4);
      CAPTURE(regex);
      const std::regex known(regex);
      const Grammar grammar = Grammar::from_regex(regex, "r");
      Expressions expressions("r");
      const Expressions::Id search = read_regex(regex, expressions, true);
      for (int i = 0; i < 40; ++i) {
        std::string text;
        for (std::size_t k = random() % 6; k > 0; --k) text += "ab13 -."[random() % 7];
        CAPTURE(text);
        CHECK(allows(grammar, text) == std::regex_match(text, known));
        CHECK(expressions.contains(search, text) == std::regex_search(text, known));
      }
    }
  }

  TEST_CASE("characters, classes, anchors and escapes") {
    CHECK(whole("^é+$", "éé"));
    CHECK(whole("[а-я]{2}", "жя"));
    CHECK(whole("[^\\n]", "😀"));
    CHECK(whole("\\u00e9\\x41\\u{1F600}\\uD83D\\uDE00", "éA😀😀"));
    CHECK(whole("\\cJ\\cj", "\n\n"));
    CHECK(whole("(?<name>a)(?:b)", "ab"));
    CHECK(whole("(^a|b)c", "ac"));
    CHECK_FALSE(whole("x(^a|b)c", "xac"));
    CHECK(whole("a($|b)", "ab"));
    CHECK(whole("", ""));
    CHECK_FALSE(whole("a.c", "a\nc"));
    CHECK_FALSE(whole("[^a]", "\xC3"));
  }

  TEST_CASE("what is not supported or damaged is an error") {
    for (const char* regex :
         {"(?=a)", "(?<!a)b", "(a)\\1", "\\bword",   "\\p{L}", "a**",   "a{2,1}", "(a",
          "a)",    "[a",      "*a",     "a{200000}", "\\",     "[b-a]", "(?i)a",  "a++",
          "^*",    "a{",      "[]a]",   "[^]",       "[^]a]",  "\\cé",  "\\c5",   "\\c"}) {
      CAPTURE(regex);
      CHECK(contains(refusal(regex), "r: the regular expression"));
    }
    CHECK(contains(refusal("[^\\x00-\\u{10FFFF}]"), "no text is allowed"));
    CHECK(contains(refusal("(((((a{100}){100}){100}){100}){100})"), "edges"));
    CHECK(contains(refusal("(a|b)*a(a|b){30}"), "states"));
    CHECK(contains(refusal(std::string(300, '(') + std::string(300, ')')), "nests deeper"));
  }
}

}  // namespace regex_test
