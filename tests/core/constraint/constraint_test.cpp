#include "core/constraint/constraint.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <random>

#include "tests/core/constraint/answers.h"
#include "tests/fuzz/constraint_target.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace constraint_test {

using namespace hyb;
using testing::contains;
using testing::error_text;

namespace {

using Random = std::mt19937;

int below(Random& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

/// An expression of GBNF over a few letters; `rules`: that may be called, which start with a
/// letter.
std::string random_expression(Random& random, int depth, int rules) {
  const std::vector<std::string> leaves{"\"a\"", "\"ab\"", "[ab]",  "[^a]",  "\"\\\"\"",
                                        "[é-ü]", ".",      "\"é\"", "[中有]"};
  switch (depth > 0 ? below(random, 8) : 0) {
    case 1:
      return "(" + random_expression(random, depth - 1, rules) + " | " +
             random_expression(random, depth - 1, rules) + ")";
    case 2:
    case 3:
      return random_expression(random, depth - 1, rules) + " " +
             random_expression(random, depth - 1, rules);
    case 4:
      return "(" + random_expression(random, depth - 1, rules) + ")" +
             std::vector<std::string>{
                 "*", "+", "?", "{2}", "{1,3}", "{0,20}"}[static_cast<std::size_t>(
                 below(random, 6))];
    case 5:
      return "\"b\" r" + std::to_string(below(random, rules));
    default:
      return leaves[static_cast<std::size_t>(below(random, static_cast<int>(leaves.size())))];
  }
}

std::string random_gbnf(Random& random) {
  const int rules = 1 + below(random, 3);
  std::string text = "root ::= " + random_expression(random, 3, rules) + "\n";
  for (int i = 0; i < rules; ++i)
    text += "r" + std::to_string(i) + " ::= \"a\" | \"b\" " + random_expression(random, 2, rules) +
            "\n";
  return text;
}

VocabularyTrie random_vocabulary(Random& random) {
  std::vector<std::string> longer{
      "", "ab", "ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaa", "\xC3", "\xA9\"", "é", "è", "bè", "中文"};
  for (int i = 0; i < 60; ++i) {
    std::string token;
    for (int k = 1 + below(random, 6); k > 0; --k)
      token +=
          std::vector<std::string>{
              "a", "b", "a", "b", "é", "\"", "\n", "\xC3", "z"}[static_cast<std::size_t>(
              below(random, 9))];
    longer.push_back(token);
  }
  return byte_vocabulary(longer);
}

bool has(std::span<const std::uint32_t> mask, std::int32_t token) {
  return mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U;
}

std::vector<std::int32_t> allowed(std::span<const std::uint32_t> mask, std::int32_t size) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < size; ++i)
    if (has(mask, i)) tokens.push_back(i);
  return tokens;
}

/// Every token is in the mask if and only if its bytes are allowed one by one.
void check_mask(GrammarMatcher& matcher, const VocabularyTrie& vocabulary) {
  const auto view = matcher.mask();
  const std::vector<std::uint32_t> mask(view.begin(), view.end());
  for (std::int32_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId token{i};
    bool fits = !vocabulary.bytes(token).empty();
    GrammarMatcher copy = matcher;
    for (const char byte : vocabulary.bytes(token)) fits = fits && copy.accept_bytes({&byte, 1});
    if (vocabulary.is_end(token)) fits = matcher.is_complete();
    REQUIRE(has(mask, i) == fits);
  }
}

}  // namespace

TEST_SUITE("core/constraint/constraint") {
  TEST_CASE("a mask has the tokens whose bytes are allowed one by one") {
    Random random(1);
    int grammars = 0;
    for (int round = 0; round < 150; ++round) {
      const std::string text = random_gbnf(random);
      CAPTURE(text);
      const VocabularyTrie vocabulary = random_vocabulary(random);
      const Grammar grammar = Grammar::from_gbnf(text, "g");
      Constraint constraint(grammar, vocabulary);
      GrammarMatcher matcher(constraint);
      ++grammars;
      for (int step = 0; step < 12 && !matcher.has_ended(); ++step) {
        check_mask(matcher, vocabulary);
        const auto tokens = allowed(matcher.mask(), vocabulary.size());
        REQUIRE(!tokens.empty());
        REQUIRE(matcher.accept(TokenId{tokens[random() % tokens.size()]}));
      }
    }
    CHECK(grammars == 150);
  }

  TEST_CASE("roll back, copies, small memory and other masks in between change no mask") {
    Random random(2);
    for (int round = 0; round < 60; ++round) {
      const std::string text = random_gbnf(random);
      CAPTURE(text);
      const VocabularyTrie vocabulary = random_vocabulary(random);
      const Grammar grammar = Grammar::from_gbnf(text, "g");
      Constraint plain(grammar, vocabulary), small(grammar, vocabulary, {1, 1});
      GrammarMatcher matcher(plain), other(small);
      for (int step = 0; step < 20 && !matcher.has_ended(); ++step) {
        const auto tokens = allowed(matcher.mask(), vocabulary.size());
        REQUIRE(tokens == allowed(other.mask(), vocabulary.size()));
        GrammarMatcher drafts = other, copy = other;
        for (int draft = 0; draft < 3 && !drafts.has_ended(); ++draft) {
          const auto next = allowed(drafts.mask(), vocabulary.size());
          REQUIRE(drafts.accept(TokenId{next[random() % next.size()]}));
        }
        drafts = copy;
        REQUIRE(tokens == allowed(drafts.mask(), vocabulary.size()));
        REQUIRE(tokens == allowed(other.mask(), vocabulary.size()));
        REQUIRE(tokens == allowed(copy.mask(), vocabulary.size()));
        const TokenId token{tokens[random() % tokens.size()]};
        REQUIRE(matcher.accept(token));
        REQUIRE(other.accept(token));
      }
    }
  }

  TEST_CASE("nothing is allowed after the end, and what is refused changes nothing") {
    const VocabularyTrie vocabulary = byte_vocabulary({"ab"});
    const Grammar grammar = Grammar::from_regex("abc?", "r");
    Constraint constraint(grammar, vocabulary);
    GrammarMatcher matcher(constraint);
    CHECK_FALSE(matcher.accept(vocabulary.ends()[0]));
    CHECK_FALSE(matcher.accept_bytes("ax"));
    CHECK(matcher.forced_bytes(10) == "ab");
    CHECK(matcher.forced_bytes(1) == "a");
    CHECK(matcher.accept(TokenId{256}));
    CHECK(matcher.is_complete());
    CHECK(matcher.forced_bytes(10).empty());
    GrammarMatcher before = matcher;
    CHECK(matcher.accept(vocabulary.ends()[0]));
    CHECK(matcher.has_ended());
    CHECK_FALSE(matcher.is_complete());
    CHECK(allowed(matcher.mask(), vocabulary.size()).empty());
    CHECK_FALSE(matcher.accept_bytes("c"));
    CHECK(before.accept_bytes("c"));
  }

  TEST_CASE("what nests too deeply is not offered, and what is open can be closed") {
    const VocabularyTrie vocabulary = byte_vocabulary({"[[["});
    for (const char* text : {"root ::= \"[\" root \"]\" | \"x\"",
                             "root ::= \"[\" (a | b)\na ::= root \"]\"\nb ::= \"x\""}) {
      const Grammar grammar = Grammar::from_gbnf(text, "g");
      Constraint constraint(grammar, vocabulary);
      GrammarMatcher matcher(constraint);
      int depth = 0;
      while (matcher.accept_bytes("[")) ++depth;
      CHECK(depth >= Grammar::depth_max - 2);
      CHECK(depth <= Grammar::depth_max + 2);
      check_mask(matcher, vocabulary);
      CHECK(matcher.accept_bytes("x"));
      while (matcher.accept_bytes("]")) --depth;
      CHECK(matcher.is_complete());
    }
  }

  TEST_CASE("calls that go on differently share their frames, and too many readings are an error") {
    const VocabularyTrie vocabulary = byte_vocabulary();
    for (const char* text : {"root ::= \"x\" root \"b\" | \"x\" root \"c\" | \"d\"",
                             "root ::= \"x\" r? \"b\" | \"x\" r? \"c\"\nr ::= root | \"d\""}) {
      const Grammar grammar = Grammar::from_gbnf(text, "g");
      CHECK(allows(grammar,
                   std::string(100, 'x') + "d" + std::string(50, 'b') + std::string(50, 'c')));
    }
    const Grammar grammar = Grammar::from_gbnf("root ::= [ab]* \"a\" [ab]{2500}", "g");
    Constraint constraint(grammar, vocabulary);
    GrammarMatcher matcher(constraint);
    const std::string error = error_text([&] {
      for (int i = 0; i < 2500; ++i) matcher.accept_bytes("a");
    });
    CHECK(contains(error, "g: too ambiguous"));
  }

  TEST_CASE("what the fuzzer found is followed, or refused in words (scripts/fuzz/fuzz.sh)") {
    std::size_t files = 0;
    const std::filesystem::path folder = HYB_TESTS_DIR "/fuzz/constraint";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      CAPTURE(name);
      CHECK(testing::try_constraint(testing::read_test_file("fuzz/constraint/" + name)));
      ++files;
    }
    CHECK(files > 50);
  }

  TEST_CASE("long answers of any JSON stay within the memory that was given") {
    const VocabularyTrie vocabulary = byte_vocabulary({"\":", "\",\"", "},{", "[[", "]]", "text"});
    const Grammar grammar = Grammar::json_object("o");
    Constraint constraint(grammar, vocabulary, {std::size_t{1} << 18, 1});
    GrammarMatcher matcher(constraint);
    Random random(3);
    std::size_t most = 0;
    for (int step = 0; step < 3000 && !matcher.has_ended(); ++step) {
      const auto tokens = allowed(matcher.mask(), vocabulary.size());
      REQUIRE(!tokens.empty());
      // Rather opens than closes.
      std::int32_t token = tokens[random() % tokens.size()];
      if (has(matcher.mask(), '[') && random() % 2) token = '[';
      if (token != vocabulary.size() - 1) REQUIRE(matcher.accept(TokenId{token}));
      most = std::max(most, constraint.places());
    }
    CHECK(most < 4000);
  }
}

}  // namespace constraint_test
