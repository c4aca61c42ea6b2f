#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text/pre_tokenizer.h"
#include "tests/support/error_text.h"

namespace pre_tokenizer_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string pieces(const Splitter& splitter, const std::string& text) {
  std::string out;
  splitter.split(text, [&](std::size_t begin, std::size_t end) {
    out += "[" + text.substr(begin, end - begin) + "]";
  });
  return out;
}

std::string split(SplitBehavior behavior, bool invert, const std::string& text) {
  return pieces(Splitter(Pattern("-", "f"), behavior, invert), text);
}

}  // namespace

TEST_SUITE("core/text/split") {
  TEST_CASE("the five behaviours") {
    const std::string text = "the-final--countdown-";
    CHECK(split(SplitBehavior::removed, false, text) == "[the][final][countdown]");
    CHECK(split(SplitBehavior::isolated, false, text) == "[the][-][final][-][-][countdown][-]");
    CHECK(split(SplitBehavior::merged_with_previous, false, text) ==
          "[the-][final-][-][countdown-]");
    CHECK(split(SplitBehavior::merged_with_next, false, text) == "[the][-final][-][-countdown][-]");
    CHECK(split(SplitBehavior::contiguous, false, text) == "[the][-][final][--][countdown][-]");
  }

  TEST_CASE("inverted, the text is split at what does not match") {
    const std::string text = "-ab--c";
    CHECK(split(SplitBehavior::removed, true, text) == "[-][-][-]");
    CHECK(split(SplitBehavior::merged_with_previous, true, text) == "[-ab][-][-c]");
    CHECK(split(SplitBehavior::merged_with_next, true, text) == "[-][ab-][-][c]");
    CHECK(split(SplitBehavior::contiguous, true, text) == "[-][ab][--][c]");
  }

  TEST_CASE("characters of a class") {
    const auto digit = [](char32_t c) { return c >= '0' && c <= '9'; };
    CHECK(pieces(Splitter(digit, SplitBehavior::isolated), "é12x3") == "[é][1][2][x][3]");
    CHECK(pieces(Splitter(digit, SplitBehavior::contiguous), "é12x3") == "[é][12][x][3]");
    CHECK(pieces(Splitter(digit, SplitBehavior::isolated), "").empty());
  }
}

namespace {

std::string words(const std::string& json, const std::string& text, bool at_start = true) {
  std::string out;
  const PreTokenizer pre_tokenizer(parse_json(json, "f"), "f");
  GrowthLimit growth = pre_tokenizer.growth_limit(text.size());
  pre_tokenizer.cut(text, at_start, growth,
                    [&](std::string_view word) { out += "[" + std::string(word) + "]"; });
  return out;
}

std::string error_of(const std::string& json) {
  return model_error([&] { PreTokenizer(parse_json(json, "f"), "f: pre_tokenizer"); });
}

std::string sequence(const std::string& steps) {
  return R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
}

const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false})";
const std::string prefixed = R"({"type":"ByteLevel","add_prefix_space":true})";
const std::string digits = R"({"type":"Digits","individual_digits":true})";

}  // namespace

TEST_SUITE("core/text/pre_tokenizer") {
  TEST_CASE("words of each kind") {
    CHECK(words("null", "a b") == "[a b]");
    CHECK(words(bytes, "I'll go  on\n") == "[I]['ll][ go][ ][ on][\n]");
    CHECK(words(prefixed, "go") == "[ go]");
    CHECK(words(prefixed, " go") == "[ go]");
    CHECK(words(digits, "a12½") == "[a][1][2][½]");
    CHECK(words(R"({"type":"Digits","individual_digits":false})", "a12") == "[a][12]");
    CHECK(words(R"({"type":"Punctuation"})", "a,,b") == "[a][,][,][b]");
    CHECK(words(R"({"type":"Punctuation","behavior":"Contiguous"})", "a,,b") == "[a][,,][b]");
    CHECK(words(R"({"type":"Whitespace"})", "a-b  c") == "[a][-][b][c]");
    CHECK(words(R"({"type":"WhitespaceSplit"})", " a-b\u3000c") == "[a-b][c]");
    CHECK(words(R"({"type":"Split","pattern":{"String":" "},"behavior":"Removed"})", "a b") ==
          "[a][b]");
    CHECK(words("null", "") == "");
  }

  TEST_CASE("metaspace") {
    const auto meta = [](const std::string& fields) {
      return R"({"type":"Metaspace")" + fields + "}";
    };
    CHECK(words(meta(""), "a b") == "[▁a][▁b]");
    CHECK(words(meta(""), " a") == "[▁a]");
    CHECK(words(meta(""), "a", false) == "[▁a]");
    CHECK(words(meta(R"(,"prepend_scheme":"first")"), "a b") == "[▁a][▁b]");
    CHECK(words(meta(R"(,"prepend_scheme":"first")"), "a b", false) == "[a][▁b]");
    CHECK(words(meta(R"(,"prepend_scheme":"never","split":false)"), "a  b") == "[a▁▁b]");
    CHECK(words(meta(R"(,"add_prefix_space":false)"), "a b") == "[a][▁b]");
    CHECK(words(meta(R"(,"replacement":"_","split":true)"), "a b") == "[_a][_b]");
  }

  TEST_CASE("each step of a sequence splits the words of the previous one") {
    CHECK(words(sequence(digits + "," + bytes), "ab 12") == "[ab][ ][1][2]");
    // A byte-level step spells bytes only if another step follows.
    CHECK(words(sequence(bytes + "," + digits), "é 1") == "[Ã©][Ġ][1]");
    CHECK(PreTokenizer(parse_json(bytes, "f"), "f").byte_level());
    CHECK_FALSE(PreTokenizer(parse_json(sequence(bytes + "," + digits), "f"), "f").byte_level());
  }

  TEST_CASE("steps that multiply the text end in an error, not in the machine's memory") {
    const auto chain = [](const std::string& step, int steps) {
      std::string list = step;
      for (int i = 1; i < steps; ++i) list += "," + step;
      return sequence(list);
    };
    const std::string spell = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
    const std::string letters = R"({"type":"Split","pattern":{"Regex":"."},"behavior":"Isolated"})";
    const std::string prefix = R"({"type":"Metaspace","split":false})";
    for (const std::string& json :
         {chain(spell, 40), chain(letters + R"(,{"type":"ByteLevel","use_regex":false})", 40)}) {
      CHECK(contains(model_error([&] { words(json, "a \u00e9"); }),
                     "f: its steps add more than 4352 bytes to a text of size 4;"));
    }
    CHECK(contains(error_of(chain(prefix, 257)), "has 257 steps, the limit is 256"));
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(error_of(R"({"type":"UnicodeScripts"})") ==
          "f: pre_tokenizer: the pre-tokenizer \"UnicodeScripts\" is not supported");
    CHECK(contains(error_of(R"({"type":"Split","pattern":{"String":" "},"behavior":"Eaten"})"),
                   "Eaten"));
    CHECK(contains(error_of(R"({"type":"Metaspace","replacement":"ab"})"), "one character"));
    CHECK(contains(error_of(R"({"type":"Metaspace","prepend_scheme":"maybe"})"), "maybe"));
    CHECK(contains(error_of(R"({"type":"ByteLevel","use_regex":1})"), "use_regex"));
    CHECK(contains(error_of(sequence(R"({"type":"Split","pattern":{"Regex":"\\1"}})")), "\\1"));
  }
}

}  // namespace pre_tokenizer_test
