#include "core/engine/stop_strings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_model.h"

namespace stop_strings_test {

using namespace hyb;
using hyb::sim::Random;

namespace {

std::string random_text(Random& random, std::int32_t length_max) {
  static const char* const letters[] = {"a", "b", "a", "é", "€"};
  std::string text;
  for (std::int32_t i = random.between(1, length_max); i > 0; --i) {
    text += letters[random.below(std::size(letters))];
  }
  return text;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> all;
  for (const char byte : text) {
    const bool continues = (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
    if (!continues) all.emplace_back();
    all.back() += byte;
  }
  return all;
}

/// Pushes the text one character at a time.
std::string search(const std::vector<std::string>& stop, std::string_view text) {
  const StopStrings strings(stop);
  StopSearch stop_search(strings);
  std::string said;
  for (const std::string& character : characters(text)) said += stop_search.push(character);
  return said + stop_search.flush();
}

std::string error_of(const std::vector<std::string>& stop) {
  try {
    const StopStrings strings(stop);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/engine/stop_strings") {
  TEST_CASE("random texts in random pieces are cut where a search of the whole text cuts them") {
    Random random(1);
    int found = 0;
    for (int round = 0; round < 5000; ++round) {
      std::vector<std::string> stop;
      for (std::int32_t i = random.between(0, 5); i > 0; --i)
        stop.push_back(random_text(random, 5));
      const std::string text = random_text(random, 40);
      const sim::PlainText expected = sim::cut_at_stop(text, stop);
      CAPTURE(text);

      const StopStrings strings(stop);
      StopSearch stop_search(strings);
      std::string said, piece, all;
      for (const std::string& character : characters(text)) {
        piece += character;
        if (random.chance(60)) continue;
        all += piece;
        said += stop_search.push(piece);
        piece.clear();
        // Nothing is said that a later stop string could take back, and no more held than needed.
        REQUIRE(expected.text.starts_with(said));
        if (!stop_search.found()) CHECK(all.size() - said.size() < 5 * 3);
        CHECK(stop_search.found() == sim::cut_at_stop(all, stop).stopped);
      }
      said += stop_search.push(piece);
      said += stop_search.flush();
      REQUIRE(said == expected.text);
      REQUIRE(stop_search.found() == expected.stopped);
      found += expected.stopped ? 1 : 0;
    }
    CHECK(found > 1000);
    CHECK(found < 4500);
  }

  TEST_CASE("what may begin a stop string is held back until decided") {
    const StopStrings strings(std::vector<std::string>{"stop!"});
    StopSearch stop_search(strings);
    CHECK(stop_search.push("a st") == "a ");
    CHECK(stop_search.push("o") == "");
    CHECK(stop_search.push("st") == "sto");
    CHECK(stop_search.push("op") == "");
    CHECK_FALSE(stop_search.found());
    CHECK(stop_search.push("! and more") == "");
    CHECK(stop_search.found());
    CHECK(stop_search.push("never said") == "");
    CHECK(stop_search.flush() == "");
  }

  TEST_CASE("the end of the text sets free what was held") {
    CHECK(search({"abc"}, "xxab") == "xxab");
    CHECK(search({"abc"}, "ab") == "ab");
    CHECK(search({}, "ab") == "ab");
  }

  TEST_CASE("the stop string complete first counts, then the longest") {
    CHECK(search({"abcd", "bc"}, "xabcd") == "xa");
    CHECK(search({"c", "abc", "bc"}, "xabcd") == "x");
    CHECK(search({"abcd", "bcx"}, "abcx") == "a");
    CHECK(search({"aab"}, "aaab") == "a");
    CHECK(search({"é"}, "aé€") == "a");
  }

  TEST_CASE("a long hostile text takes linear time") {
    std::vector<std::string> stop;
    for (std::size_t i = 1; i <= 64; ++i) stop.push_back(std::string(i * 3, 'a') + "b");
    const StopStrings strings(stop);
    StopSearch stop_search(strings);
    const std::string piece(1000, 'a');
    std::size_t said = 0;
    for (int i = 0; i < 2000; ++i) said += stop_search.push(piece).size();
    CHECK(said == 2'000'000 - 192);
    CHECK(stop_search.push("b") == "");
    CHECK(stop_search.found());
  }

  TEST_CASE("sets that are too large or hold nonsense are refused") {
    CHECK(error_of(std::vector<std::string>(64, "x")) == "");
    CHECK(error_of(std::vector<std::string>(10'000, "x")) ==
          "stop strings: at most 64 are allowed: 10000");
    CHECK(error_of({std::string(20'000, 'x')}) ==
          "stop strings: at most 16384 bytes together are allowed: 20000");
    CHECK(error_of({"a", ""}) == "stop strings: one of them is empty");
    CHECK(error_of({"a\xC3"}) == "stop strings: one of them is not valid UTF-8");
  }
}

}  // namespace stop_strings_test
