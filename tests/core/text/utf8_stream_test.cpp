#include "core/text/utf8_stream.h"

#include <doctest/doctest.h>

#include <random>

#include "core/text/utf8.h"

using namespace hyb;

namespace {

std::string lossy(const std::string& bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    if (unit.kind == Utf8Unit::Kind::character) {
      out += bytes.substr(at, unit.bytes);
    } else {
      out += replacement_character;
    }
    at += unit.bytes;
  }
  return out;
}

}  // namespace

TEST_SUITE("core/text/utf8_stream") {
  TEST_CASE("the cuts do not matter, and no character comes in halves") {
    std::mt19937 random(5);
    const std::string parts[] = {"a",        "é",        "€",    "😀",       "\xFF",
                                 "\xE2\x82", "\xF0\x9F", "\x80", "\xED\xA0"};
    for (int round = 0; round < 3000; ++round) {
      std::string bytes;
      for (unsigned i = 0, n = random() % 8; i < n; ++i)
        bytes += parts[random() % std::size(parts)];
      Utf8Stream stream;
      std::string out;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t size = 1 + random() % 4;
        stream.push(std::string_view(bytes).substr(at, size), out);
        REQUIRE(is_well_formed(out));
        at += size;
      }
      stream.flush(out);
      REQUIRE(out == lossy(bytes));
    }
  }

  TEST_CASE("a character is given out as soon as it is whole") {
    Utf8Stream stream;
    std::string out;
    stream.push("\xF0\x9F\x98", out);
    CHECK(out.empty());
    stream.push("\x80", out);
    CHECK(out == "😀");
    stream.flush(out);
    CHECK(out == "😀");
  }
}
