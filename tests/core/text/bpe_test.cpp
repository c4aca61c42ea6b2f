#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "core/text/bpe.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace bpe_test {

using namespace hyb;
using testing::contains;
using testing::model_error;
using testing::TokenizerText;

TEST_SUITE("core/text/merge_table") {
  TEST_CASE("pairs are ranked by position, repeated ones by the later position") {
    MergeTable table(2001);
    for (int i = 0; i < 2000; ++i) table.add(TokenId{i}, TokenId{i * 31 % 977}, TokenId{5000 + i});
    for (int i = 0; i < 2000; ++i) {
      REQUIRE(table.rank(TokenId{i}, TokenId{i * 31 % 977}) == i);
      REQUIRE(table.merged(i) == TokenId{5000 + i});
    }
    CHECK(table.rank(TokenId{5}, TokenId{6}) == MergeTable::none);
    table.add(TokenId{0}, TokenId{0}, TokenId{1});
    CHECK(table.rank(TokenId{0}, TokenId{0}) == 2000);
    CHECK(table.merged(2000) == TokenId{1});
  }

  TEST_CASE("an empty table merges nothing") {
    CHECK(MergeTable(0).rank(TokenId{0}, TokenId{0}) == MergeTable::none);
  }
}

namespace {

/// The definition: repeatedly merges the pair of lowest rank, the leftmost of equal ones.
std::vector<TokenId> merged_plainly(std::vector<TokenId> symbols, const MergeTable& table) {
  while (true) {
    MergeTable::Rank lowest = MergeTable::none;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Rank rank = table.rank(symbols[i], symbols[i + 1]);
      if (rank < lowest) {
        lowest = rank;
        where = i;
      }
    }
    if (lowest == MergeTable::none) return symbols;
    symbols[where] = table.merged(lowest);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

}  // namespace

TEST_SUITE("core/text/merge") {
  TEST_CASE("short and long words merge as the definition says") {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
      // Symbols 0-3 are letters; a merge joins two known symbols into a new one.
      MergeTable table(60);
      std::vector<std::pair<int, int>> pairs;
      for (int id = 4; id < 64; ++id) {
        const auto known = static_cast<unsigned>(id);
        const int left = static_cast<int>(random() % (random() % 2 ? 4 : known));
        const int right = static_cast<int>(random() % (random() % 2 ? 4 : known));
        pairs.emplace_back(left, right);
      }
      // Any order of ranks is allowed, also a long piece before its parts.
      std::vector<int> order;
      for (int i = 0; i < 60; ++i) order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        const auto& [left, right] = pairs[static_cast<std::size_t>(i)];
        table.add(TokenId{left}, TokenId{right}, TokenId{i + 4});
      }
      std::vector<TokenId> word(random() % 200);
      const unsigned letters = 1 + random() % 4;
      for (TokenId& symbol : word) symbol = TokenId{static_cast<int>(random() % letters)};
      const std::vector<TokenId> want = merged_plainly(word, table);
      merge_symbols(word, table);
      REQUIRE(word == want);
    }
  }

  TEST_CASE("a million equal letters merge in time") {
    MergeTable table(10);
    for (int i = 0; i < 10; ++i) table.add(TokenId{i}, TokenId{i}, TokenId{i + 1});
    std::vector<TokenId> word(1'000'000, TokenId{0});
    merge_symbols(word, table);
    CHECK(word.size() == 1'000'000 / 1024 + 2);  // the rest, 576, is 512 and 64
    CHECK(word.front() == TokenId{10});
    CHECK(word.back() == TokenId{6});
  }
}

TEST_SUITE("core/text/word_memo") {
  TEST_CASE("cached words are found by word and kind") {
    WordMemo memo(10000);
    const std::vector<TokenId> tokens = {TokenId{1}, TokenId{2}};
    memo.put(memo.key("word", 0), "word", tokens);
    const auto found = memo.find(memo.key("word", 0), "word");
    CHECK(std::vector<TokenId>(found.begin(), found.end()) == tokens);
    CHECK(memo.find(memo.key("word", 1), "word").empty());
    CHECK(memo.find(memo.key("wor", 0), "wor").empty());
    CHECK(memo.find({memo.key("word", 0).hash, true}, "else").empty());  // the hash is not enough
  }

  TEST_CASE("short texts and long words are not cached") {
    WordMemo none(100);
    CHECK_FALSE(none.key("word", 0).usable);
    CHECK_FALSE(WordMemo(10000).key(std::string(1000, 'a'), 0).usable);
  }

  TEST_CASE("every hit is right, however much was put") {
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

namespace {

std::vector<int> encoded(const TokenizerText& text, const std::string& word,
                         bool byte_level = false) {
  const TokenizerFile file = read_tokenizer_json(text.text(), "f");
  const Bpe model(file, file.vocabulary);
  Bpe::Run run(model, byte_level, 1000);
  std::vector<int> ids;
  for (int round = 0; round < 2; ++round) {  // the second time from the memo
    std::vector<TokenId> tokens;
    run.encode(word, tokens);
    std::vector<int> now;
    for (const TokenId token : tokens) now.push_back(index(token));
    if (round == 1) CHECK(now == ids);
    ids = now;
  }
  return ids;
}

std::string error_of(const TokenizerText& text) {
  return model_error([&] {
    const TokenizerFile file = read_tokenizer_json(text.text(), "f");
    Bpe(file, file.vocabulary);
  });
}

using Ids = std::vector<int>;

}  // namespace

TEST_SUITE("core/text/bpe") {
  TEST_CASE("merges go by rank, after the whole word with ignore_merges") {
    CHECK(encoded({}, "abcab") == Ids{4, 3});
    CHECK(encoded({.merges = R"(["a b"])"}, "abc") == Ids{3, 2});
    CHECK(encoded({.merges = R"(["a b"])", .model = R"("ignore_merges":true)"}, "abc") == Ids{4});
    CHECK(encoded({}, "") == Ids{});
  }

  TEST_CASE("unknown characters") {
    const auto with = [](const std::string& fields) {
      return TokenizerText{.model = R"("unk_token":"<unk>",)" + fields};
    };
    CHECK(encoded({}, "a字b") == Ids{3});  // nothing between them, as in Hugging Face
    CHECK(encoded(with(R"("fuse_unk":false)"), "a字字b") == Ids{0, 5, 5, 1});
    CHECK(encoded(with(R"("fuse_unk":true)"), "a字字b字") == Ids{0, 5, 1, 5});
    TokenizerText bytes = with(R"("byte_fallback":true)");
    bytes.vocab = R"({"a":0,"<unk>":1,"<0xC3>":2,"<0xA9>":3,"<0xB6>":4})";
    bytes.merges = R"([["<0xC3>","<0xA9>"]])";
    bytes.vocab.insert(1, R"("<0xC3><0xA9>":9,)");
    CHECK(encoded(bytes, "aéö") == Ids{0, 9, 2, 4});
    CHECK(encoded(bytes, "字é") == Ids{9, 1});  // the pending unknown token follows the byte tokens
  }

  TEST_CASE("byte-level words are bytes") {
    TokenizerText text;
    text.vocab = R"({"Ġ":0,"Ã":1,"©":2,"Ã©":3,"ĠÃ©":4})";
    text.merges = R"([["Ã","©"]])";
    CHECK(encoded(text, " é", true) == Ids{0, 3});
    text.model = R"("ignore_merges":true)";
    CHECK(encoded(text, " é", true) == Ids{4});
  }

  TEST_CASE("a long word is cut only where no merge joins") {
    TokenizerText text;
    text.vocab = R"({"a":0,"b":1,"_":2,"ab":3,"_a":4,"_ab":5,"<unk>":6,"b_":7})";
    text.model = R"("unk_token":"<unk>","fuse_unk":true)";
    std::mt19937 random(3);
    for (const char* merges : {R"(["_ a","_a b","a b"])", R"(["a b","_ ab","b _"])", "[]"}) {
      text.merges = merges;
      for (int round = 0; round < 200; ++round) {
        const char* letters[] = {"a", "b", "_", "字", "_"};
        std::string word;
        for (int i = 0; i < 120; ++i) word += letters[random() % 5];
        // The same symbols merged at once, without cuts.
        const TokenizerFile file = read_tokenizer_json(text.text(), "f");
        const Bpe model(file, file.vocabulary);
        std::vector<TokenId> whole;
        Bpe::Run(model, false, 0).encode_uncut(word, whole);
        std::vector<TokenId> cut;
        Bpe::Run(model, false, 100000).encode(word, cut);
        REQUIRE(cut == whole);
      }
    }
  }

  TEST_CASE("a contradiction is an error that names it") {
    CHECK(error_of({.merges = R"(["a z"])"}) ==
          "f: model.merges: \"a z\" names \"z\", which is not in the vocabulary");
    CHECK(contains(error_of({.merges = R"(["b a"])"}), "names \"ba\""));
    CHECK(contains(error_of({.model = R"("unk_token":"nope")"}), "unk_token \"nope\""));
    CHECK(contains(error_of({.model = R"("dropout":0.1)"}), "dropout"));
    CHECK(contains(error_of({.model = R"("end_of_word_suffix":"</w>")"}), "end_of_word_suffix"));
    CHECK(contains(error_of({.model = R"("continuing_subword_prefix":"##")"}), "prefix"));
    CHECK(contains(error_of({.model = R"("fuse_unk":1)"}), "fuse_unk"));
    CHECK(error_of({.model = R"("dropout":null,"end_of_word_suffix":"")"}).empty());
  }
}

}  // namespace bpe_test
