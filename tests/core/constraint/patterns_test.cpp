#include <doctest/doctest.h>

#include <random>

#include "tests/core/constraint/answers.h"
#include "tests/support/error_text.h"

namespace patterns_test {

using namespace hyb;
using testing::contains;
using testing::error_text;

namespace {

std::string refusal(const std::string& text) {
  return error_text([&] { Grammar::from_gbnf(text, "g"); });
}

}  // namespace

TEST_SUITE("core/constraint/patterns") {
  TEST_CASE("a grammar with all forms") {
    const Grammar grammar = Grammar::from_gbnf(R"g(# arithmetic
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*   # a loop
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::=
  [0-9]{1,3} ws |
  "\x23" . "é" [^a-z\]]? ws
ws    ::= [ \t\n]*
)g",
                                               "g");
    CHECK(allows(grammar, "a +(b1*23) = 5\n"));
    CHECK(allows(grammar, "#\n\xC3\xA9!=1\n"));
    CHECK(allows(grammar, "#€éA=1\nx=y\n"));
    CHECK_FALSE(allows(grammar, "a + = 5\n"));
    CHECK_FALSE(allows(grammar, "1234=5\n"));
    CHECK_FALSE(allows(grammar, "a=5"));
  }

  TEST_CASE("repetitions, empty alternatives and recursion") {
    const Grammar grammar =
        Grammar::from_gbnf("root ::= \"a\"{2} b{1,} c{0,2} |\nb ::= \"b\" b |\nc ::= \"c\"\n", "g");
    CHECK(allows(grammar, ""));
    CHECK(allows(grammar, "aabbbcc"));
    CHECK(allows(grammar, "aa"));
    CHECK_FALSE(allows(grammar, "aaccc"));
    CHECK(allows(Grammar::from_gbnf("root ::= ((\"x\"?)*)+", "g"), "xxx"));
  }

  TEST_CASE("errors name the line and what is wrong") {
    CHECK(contains(refusal("root ::= a"), "the rule 'a' is used, but not defined"));
    CHECK(contains(refusal("a ::= \"a\""), "no rule 'root'"));
    CHECK(contains(refusal("root ::= \"a\"\nroot ::= \"b\""),
                   "line 2: the rule 'root' is defined twice"));
    CHECK(contains(refusal("root ::= <think>"), "references to tokens"));
    CHECK(contains(refusal("root ::= !<[12]>"), "references to tokens"));
    CHECK(contains(refusal("root ::= root \"a\" | \"b\""), "left recursion"));
    CHECK(contains(refusal("root ::= x? y \"a\" | \"b\"\nx ::= \"x\"\ny ::= root"),
                   "left recursion"));
    CHECK(contains(refusal("root ::= \"a\" root"), "no text is allowed"));
    CHECK(contains(refusal("root ::= \"a"), "has no end"));
    CHECK(contains(refusal("root ::= [a"), "has no end"));
    CHECK(contains(refusal("root ::= (\"a\""), "')' is expected"));
    CHECK(contains(refusal("root ::= \"\\q\""), "unknown escape"));
    CHECK(contains(refusal("root ::= \"a\"{3,2}"), "ends below its start"));
    CHECK(contains(refusal("root ::= ((((\"a\"{1000}){1000}){1000}){1000})"), "edges"));
    CHECK(contains(refusal("root ::= " + std::string(300, '(')), "nests deeper"));
    std::string stars = "root ::= " + std::string(100, '(') + "\"a\"", empty;
    for (int i = 0; i < 100; ++i) stars += std::string(200, '*') + ")";
    CHECK(contains(refusal(stars), "in each other"));
    for (int i = 0; i < 5'000; ++i) empty += "\nr" + std::to_string(i) + " ::= x{0,100000}";
    CHECK(contains(refusal("root ::= \"b\"\nx ::= \"a\" |" + empty), "may be empty"));
    CHECK(contains(refusal(""), "no rule 'root'"));
  }

  TEST_CASE("damaged grammars end in an error or in a grammar that goes on") {
    const std::string base =
        "root ::= \"a\" [b-d]{1,3} (x | \"\\x41\")* # c\nx ::= . y?\ny ::= \"é\" | x \"z\"\n";
    std::mt19937 random(6);
    int grammars = 0;
    for (int round = 0; round < 10'000; ++round) {
      std::string text = base;
      for (std::size_t k = 1 + random() % 3; k > 0 && !text.empty(); --k) {
        const std::size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text.erase(at, 1 + random() % 4);
            break;
          case 1:
            text.insert(at, 1, "\"[]{}()|*+?\\:=ax#\n,9.-^"[random() % 24]);
            break;
          default:
            text[at] = static_cast<char>(random());
            break;
        }
      }
      try {
        const Grammar grammar = Grammar::from_gbnf(text, "g");
        ++grammars;
        if (grammars % 10 != 0) continue;
        static const VocabularyTrie bytes = byte_vocabulary({"ab", "zz"});
        Constraint constraint(grammar, bytes);
        GrammarMatcher matcher(constraint);
        bool any = false;
        for (const std::uint32_t word : matcher.mask()) any = any || word != 0;
        CHECK(any);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
      }
    }
    CHECK(grammars > 500);
  }
}

}  // namespace patterns_test
