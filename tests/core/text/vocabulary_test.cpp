#include <set>

#include <doctest/doctest.h>

#include "core/base/error.h"
#include "core/text/vocabulary.h"

namespace vocabulary_test {

using namespace hyb;

TEST_SUITE("core/text/vocabulary") {
  TEST_CASE("thousands of pieces are found both ways, with holes") {
    Vocabulary vocabulary;
    for (int i = 0; i < 5000; ++i) {
      REQUIRE(vocabulary.add("piece " + std::to_string(i * 7), TokenId{i * 2}) ==
              Vocabulary::Added::yes);
    }
    CHECK(vocabulary.size() == 9999);
    CHECK(vocabulary.count() == 5000);
    CHECK(vocabulary.longest_bytes() == 11);
    for (int i = 0; i < 5000; ++i) {
      REQUIRE(vocabulary.find("piece " + std::to_string(i * 7)) == TokenId{i * 2});
      REQUIRE(vocabulary.piece(TokenId{i * 2}) == "piece " + std::to_string(i * 7));
      REQUIRE_FALSE(vocabulary.contains(TokenId{i * 2 + 1}));
    }
    CHECK_FALSE(vocabulary.find("piece 1"));
    CHECK(vocabulary.piece(TokenId{1}).empty());
    CHECK(vocabulary.piece(TokenId{-1}).empty());
    CHECK(vocabulary.piece(TokenId{1 << 30}).empty());
  }

  TEST_CASE("neither a piece nor an id is added twice") {
    Vocabulary vocabulary;
    CHECK(vocabulary.add("a", TokenId{0}) == Vocabulary::Added::yes);
    CHECK(vocabulary.add("a", TokenId{1}) == Vocabulary::Added::repeated_piece);
    CHECK(vocabulary.add("b", TokenId{0}) == Vocabulary::Added::repeated_id);
    CHECK(vocabulary.count() == 1);
    CHECK(vocabulary.add("", TokenId{3}) == Vocabulary::Added::yes);
    CHECK(vocabulary.find("") == TokenId{3});
    CHECK_THROWS_AS(vocabulary.add("c", TokenId{-1}), Error);
  }
}

TEST_SUITE("core/text/byte_level") {
  TEST_CASE("every byte round-trips through its own character") {
    std::set<char32_t> seen;
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
      const auto plain = static_cast<unsigned char>(byte);
      const char32_t character = byte_level_character(plain);
      CHECK(seen.insert(character).second);
      CHECK(byte_level_byte(character) == plain);
      all += static_cast<char>(byte);
    }
    std::string back;
    append_from_byte_level(to_byte_level(all), back);
    CHECK(back == all);
  }

  TEST_CASE("the spelling is GPT-2's") {
    CHECK(to_byte_level(" a\n!é") == "ĠaĊ!Ã©");
    CHECK(byte_level_character(0xAD) == 0x143);  // the last that is moved
    CHECK_FALSE(byte_level_byte(U' '));
    CHECK_FALSE(byte_level_byte(U'字'));
  }

  TEST_CASE("a piece with a character that spells no byte is unchanged") {
    std::string out = "x";
    append_from_byte_level("Ġa b", out);
    CHECK(out == "xĠa b");
  }
}

}  // namespace vocabulary_test
