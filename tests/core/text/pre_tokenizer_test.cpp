#include "core/text/pre_tokenizer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string words(const std::string& json, const std::string& text, bool at_start = true) {
  std::string out;
  PreTokenizer(parse_json(json, "f"), "f").cut(text, at_start, [&](std::string_view word) {
    out += "[" + std::string(word) + "]";
  });
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

  TEST_CASE("steps of a sequence cut the words of the one before") {
    CHECK(words(sequence(digits + "," + bytes), "ab 12") == "[ab][ ][1][2]");
    // Bytes are spelled by the last step only if another follows.
    CHECK(words(sequence(bytes + "," + digits), "é 1") == "[Ã©][Ġ][1]");
    CHECK(PreTokenizer(parse_json(bytes, "f"), "f").byte_level());
    CHECK_FALSE(PreTokenizer(parse_json(sequence(bytes + "," + digits), "f"), "f").byte_level());
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
