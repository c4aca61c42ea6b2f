#include "app/ui/keys.h"

#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace keys_test {

using namespace hyb::app;
using Kind = Key::Kind;

namespace {

std::vector<Key> decoded(std::string_view bytes) {
  KeyDecoder decoder;
  std::vector<Key> keys;
  decoder.push(bytes, keys);
  return keys;
}

/// Neighbouring text in one piece: how it is cut says nothing.
std::vector<std::pair<Kind, std::string>> joined(const std::vector<Key>& keys) {
  std::vector<std::pair<Kind, std::string>> out;
  for (const Key& key : keys) {
    const bool goes_on = key.kind == Kind::text && !out.empty() && out.back().first == Kind::text;
    if (goes_on) {
      out.back().second += key.text;
    } else {
      out.emplace_back(key.kind, key.text);
    }
  }
  return out;
}

void check_key(std::string_view bytes, Kind kind) {
  CAPTURE(bytes);
  const auto keys = decoded(bytes);
  REQUIRE(keys.size() == 1);
  CHECK(keys.front().kind == kind);
}

}  // namespace

TEST_SUITE("app/ui/keys") {
  TEST_CASE("keys of the usual terminals") {
    check_key("\x1b[A", Kind::up);
    check_key("\x1bOA", Kind::up);
    check_key("\x1b[1;5D", Kind::word_left);
    check_key("\x1b[3~", Kind::erase_right);
    check_key("\x1b[H", Kind::home);
    check_key("\x1b[4~", Kind::end);
    check_key("\x1b\r", Kind::line_break);
    check_key("\n", Kind::line_break);
    check_key("\r", Kind::enter);
    check_key("\x07", Kind::abort);
    check_key("\x18\x05", Kind::editor);
    CHECK(joined(decoded("\x18y")) == joined(decoded("y")));
    check_key("\x1b[13;2u", Kind::line_break);
    check_key(
        "\x1b"
        "b",
        Kind::word_left);
    check_key("\x03", Kind::interrupt);
    check_key("\x7f", Kind::erase_left);
  }

  TEST_CASE("text comes in one piece, unknown sequences not at all") {
    const auto keys = decoded("h\xc3\xa4llo\x1b[99;99Z\x1b[5~\x1bq!");
    REQUIRE(joined(keys).size() == 1);
    CHECK(joined(keys).front().second == "hällo!");
  }

  TEST_CASE("a paste is one key, with its line breaks and control characters") {
    const auto keys = decoded("a\x1b[200~one\rtwo\r\nthree\x03\x1b[A\x1b[201~\r");
    REQUIRE(keys.size() == 3);
    CHECK(keys[1].kind == Kind::paste);
    CHECK(keys[1].text == "one\ntwo\nthree\x03\x1b[A");
    CHECK(keys[2].kind == Kind::enter);
  }

  TEST_CASE("a lone Escape is given up after a while") {
    KeyDecoder decoder;
    std::vector<Key> keys;
    decoder.push("\x1b", keys);
    CHECK(decoder.is_waiting());
    decoder.give_up();
    decoder.push("[A", keys);
    REQUIRE(keys.size() == 1);
    CHECK(keys.front().text == "[A");
  }

  TEST_CASE("an endless sequence does not swallow what follows") {
    const auto keys = decoded("\x1b[" + std::string(1000, '1') + "\x03");
    REQUIRE(!keys.empty());
    CHECK(keys.back().kind == Kind::interrupt);
  }

  TEST_CASE("the keys do not depend on how the bytes are cut") {
    const std::string parts[] = {"ab",
                                 "\xc3\xa9",
                                 "\x1b[A",
                                 "\x1bOF",
                                 "\x1b[1;5C",
                                 "\r",
                                 "\n",
                                 "\x1b\r",
                                 "\x03",
                                 "\x1b[Z",
                                 "\xf0\x9f\x98\x80",
                                 "\xff",
                                 "\x1b[200~x\r\ny\x1b[20\x1b[201~"};
    std::mt19937 random(5);
    for (int round = 0; round < 1000; ++round) {
      std::string bytes;
      for (std::size_t i = random() % 12; i > 0; --i) bytes += parts[random() % std::size(parts)];
      KeyDecoder decoder;
      std::vector<Key> keys;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = 1 + random() % 4;
        decoder.push(std::string_view(bytes).substr(at, count), keys);
        at += count;
      }
      REQUIRE(joined(keys) == joined(decoded(bytes)));
    }
  }

  TEST_CASE("a paste of 10 MB takes linear time") {
    const std::string text = "\x1b[200~" + std::string(10'000'000, 'x') + "\x1b[201~";
    KeyDecoder decoder;
    std::vector<Key> keys;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < text.size(); at += 1024) {
      decoder.push(std::string_view(text).substr(at, 1024), keys);
    }
    const auto time = std::chrono::steady_clock::now() - begin;
    REQUIRE(keys.size() == 1);
    CHECK(keys.front().text.size() == 10'000'000);
    // Quadratic would be minutes; the bound leaves room for sanitizers and busy machines.
    CHECK(time < std::chrono::seconds(60));
  }
}

}  // namespace keys_test
