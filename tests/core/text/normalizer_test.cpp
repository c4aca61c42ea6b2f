#include "core/text/normalizer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string applied(const std::string& json, const std::string& text) {
  return Normalizer(parse_json(json, "f"), "f: normalizer").apply({text, {}, Guard::open}).text;
}

std::string error_of(const std::string& json) {
  return model_error([&] { Normalizer(parse_json(json, "f"), "f: normalizer"); });
}

}  // namespace

TEST_SUITE("core/text/normalizer") {
  TEST_CASE("each kind") {
    CHECK(applied("null", "Å ") == "Å ");
    CHECK(applied(R"({"type":"NFC"})", "e\u0301") == "é");
    CHECK(applied(R"({"type":"NFD"})", "é") == "e\u0301");
    CHECK(applied(R"({"type":"NFKC"})", "ﬁ") == "fi");
    CHECK(applied(R"({"type":"NFKD"})", "①") == "1");
    CHECK(applied(R"({"type":"Lowercase"})", "ÀΣİẞ") == "àσi\u0307ß");
    CHECK(applied(R"({"type":"StripAccents"})", "e\u0301\u0903x") == "ex");
    CHECK(applied(R"({"type":"Strip"})", "\u3000 a b\n") == "a b");
    CHECK(applied(R"({"type":"Strip","strip_left":false})", " a ") == " a");
    CHECK(applied(R"({"type":"Strip","strip_right":false})", "  ") == "");
    CHECK(applied(R"({"type":"ByteLevel"})", " é") == "ĠÃ©");
    CHECK(applied(R"({"type":"Prepend","prepend":"▁"})", "a") == "▁a");
    CHECK(applied(R"({"type":"Prepend","prepend":"▁"})", "") == "");
    CHECK(applied(R"({"type":"Replace","pattern":{"String":"a."},"content":"+"})", "a.ab") ==
          "+ab");
    CHECK(applied(R"({"type":"Replace","pattern":{"Regex":"a."},"content":""})", "a.abc") == "c");
  }

  TEST_CASE("a sequence runs in order") {
    CHECK(applied(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":" "},
                      {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
                  "a b") == "▁a▁b");
    CHECK(applied(R"({"type":"Sequence","normalizers":[]})", "a") == "a");
  }

  TEST_CASE("guards go along with the text") {
    GuardedText text;
    text.append("A b", Guard::open);
    text.append("İ c", Guard::closed);
    const Normalizer normalizer(
        parse_json(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"__"},
                       {"type":"Lowercase"},
                       {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
                   "f"),
        "f");
    const GuardedText out = normalizer.apply(text);
    CHECK(out.text == "__a▁bi\u0307▁c");
    const std::size_t cut = std::string("__a▁b").size();
    for (std::size_t at = 0; at < out.text.size(); ++at) {
      CHECK(out.guard(at) == (at < cut ? Guard::open : Guard::closed));
    }
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(error_of(R"({"type":"Precompiled"})") ==
          "f: normalizer: the normalizer \"Precompiled\" is not supported");
    CHECK(contains(error_of(R"({})"), "\"type\" has to be a string"));
    CHECK(contains(error_of("[]"), "an object"));
    CHECK(contains(error_of(R"({"type":"Replace","content":""})"), "normalizer.pattern"));
    CHECK(
        contains(error_of(R"({"type":"Replace","pattern":{"String":""},"content":""})"), "empty"));
    CHECK(contains(error_of(R"({"type":"Replace","pattern":{"Regex":"("},"content":""})"), "("));
    CHECK(contains(error_of(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]})"),
                   "normalizer[1]"));
    std::string deep = R"({"type":"NFC"})";
    for (int i = 0; i < 20; ++i) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
    CHECK(contains(error_of(deep), "deeper"));
  }
}
