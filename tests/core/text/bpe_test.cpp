#include "core/text/bpe.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;
using testing::TokenizerText;

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
  TEST_CASE("merges go by rank, and the whole word first where the file says so") {
    CHECK(encoded({}, "abcab") == Ids{4, 3});
    CHECK(encoded({.merges = R"(["a b"])"}, "abc") == Ids{3, 2});
    CHECK(encoded({.merges = R"(["a b"])", .model = R"("ignore_merges":true)"}, "abc") == Ids{4});
    CHECK(encoded({}, "") == Ids{});
  }

  TEST_CASE("unknown characters") {
    const auto with = [](const std::string& fields) {
      return TokenizerText{.model = R"("unk_token":"<unk>",)" + fields};
    };
    CHECK(encoded({}, "a字b") == Ids{3});  // nothing stands between them, as in Hugging Face
    CHECK(encoded(with(R"("fuse_unk":false)"), "a字字b") == Ids{0, 5, 5, 1});
    CHECK(encoded(with(R"("fuse_unk":true)"), "a字字b字") == Ids{0, 5, 1, 5});
    TokenizerText bytes = with(R"("byte_fallback":true)");
    bytes.vocab = R"({"a":0,"<unk>":1,"<0xC3>":2,"<0xA9>":3,"<0xB6>":4})";
    bytes.merges = R"([["<0xC3>","<0xA9>"]])";
    bytes.vocab.insert(1, R"("<0xC3><0xA9>":9,)");
    CHECK(encoded(bytes, "aéö") == Ids{0, 9, 2, 4});
    CHECK(encoded(bytes, "字é") ==
          Ids{9, 1});  // the waiting unknown token comes behind byte tokens
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
        // The same symbols merged in one go, without cuts: as a table and a chain.
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

  TEST_CASE("what contradicts itself is an error that names it") {
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
