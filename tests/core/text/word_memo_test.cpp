#include "core/text/word_memo.h"

#include <doctest/doctest.h>

using namespace hyb;

TEST_SUITE("core/text/word_memo") {
  TEST_CASE("what was put is found, by word and kind") {
    WordMemo memo(10000);
    const std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}};
    memo.put(memo.key("word", 0), "word", tokens);
    const auto found = memo.find(memo.key("word", 0), "word");
    CHECK(std::vector<TokenId>(found.begin(), found.end()) == tokens);
    CHECK(memo.find(memo.key("word", 1), "word").empty());
    CHECK(memo.find(memo.key("wor", 0), "wor").empty());
    CHECK(memo.find({memo.key("word", 0).hash, true}, "else").empty());  // the hash is not enough
  }

  TEST_CASE("short texts and long words are not remembered") {
    WordMemo none(100);
    CHECK_FALSE(none.key("word", 0).usable);
    CHECK_FALSE(WordMemo(10000).key(std::string(1000, 'a'), 0).usable);
  }

  TEST_CASE("whatever is found is right, however much was put") {
    WordMemo memo(1 << 20);
    int found = 0;
    for (int i = 0; i < 600000; ++i) {
      const std::string word = "some longer word " + std::to_string(i);
      const TokenId token{i};
      memo.put(memo.key(word, 0), word, {&token, 1});
      const int before = i - static_cast<int>(i % 1000);
      const std::string old = "some longer word " + std::to_string(before);
      const auto tokens = memo.find(memo.key(old, 0), old);
      if (tokens.empty()) continue;
      ++found;
      REQUIRE(tokens[0] == TokenId{before});
    }
    CHECK(found > 300000);
  }
}
