#include "core/text/byte_level.h"

#include <doctest/doctest.h>

#include <set>

using namespace hyb;

TEST_SUITE("core/text/byte_level") {
  TEST_CASE("every byte has its own character and comes back") {
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

  TEST_CASE("a piece with a character that spells no byte stands for itself") {
    std::string out = "x";
    append_from_byte_level("Ġa b", out);
    CHECK(out == "xĠa b");
  }
}
