#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text/normalizer.h"
#include "tests/support/error_text.h"

namespace normalizer_test {

using namespace hyb;
using testing::contains;
using testing::model_error;

namespace {

std::string form(const std::string& text, UnicodeForm form) {
  return normalize({text, {}, Guard::open}, form).text;
}

}  // namespace

TEST_SUITE("core/text/unicode_form") {
  TEST_CASE("the four forms") {
    CHECK(form("e\u0301 Å \u212B", UnicodeForm::nfc) == "é Å Å");
    CHECK(form("é", UnicodeForm::nfd) == "e\u0301");
    CHECK(form("ﬁ①㎏½ ", UnicodeForm::nfkc) == "fi1kg1\u20442 ");
    CHECK(form("\u00A0é", UnicodeForm::nfkd) == " e\u0301");
    CHECK(form("\u1112\u1161\u11ab", UnicodeForm::nfc) == "한");
    CHECK(form("한", UnicodeForm::nfd) == "\u1112\u1161\u11ab");
    CHECK(form("\u0958", UnicodeForm::nfc) == "\u0915\u093C");  // excluded from composition
    CHECK(form("ﬁ", UnicodeForm::nfc) == "ﬁ");
    CHECK(form("", UnicodeForm::nfc) == "");
    CHECK(form("plain", UnicodeForm::nfkd) == "plain");
  }

  TEST_CASE("marks are ordered by class, and block each other") {
    CHECK(form("a\u0301\u0327", UnicodeForm::nfd) == "a\u0327\u0301");
    CHECK(form("a\u0308\u0301", UnicodeForm::nfc) == "ä\u0301");
    CHECK(form("x\u0301\u0327", UnicodeForm::nfc) == "x\u0327\u0301");
  }

  TEST_CASE("characters newer than the tables do not change") {
    CHECK(form("\U0001FBF2", UnicodeForm::nfkc) == "\U0001FBF2");
    CHECK(form("\U00011935\U00011930", UnicodeForm::nfc) == "\U00011935\U00011930");
  }

  TEST_CASE("normalisation is idempotent on random text") {
    const char* parts[] = {"e",      "\u0301", "\u0327", "\u0345", "ᄀ",
                           "\u1161", "\u11a8", "Å",      "x",      "字"};
    unsigned seed = 1;
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int i = 0; i < 7; ++i) {
        seed = seed * 1103515245 + 12345;
        text += parts[(seed >> 16) % 10];
      }
      for (const UnicodeForm kind : {UnicodeForm::nfc, UnicodeForm::nfd}) {
        const std::string once = form(text, kind);
        REQUIRE(form(once, kind) == once);
        const UnicodeForm other = kind == UnicodeForm::nfc ? UnicodeForm::nfd : UnicodeForm::nfc;
        REQUIRE(form(form(text, other), kind) == once);
      }
    }
  }

  TEST_CASE("a flood of marks takes linear time") {
    std::string flood = "a";
    for (int i = 0; i < 300000; ++i) flood += "\u0301\u0327";
    CHECK(form(flood, UnicodeForm::nfc).size() == flood.size() - 1);  // á is as long as its mark
  }

  TEST_CASE("a guard covers what composes, and no more") {
    GuardedText text;
    text.append("字e", Guard::open);
    text.append("\u0301字", Guard::closed);
    const GuardedText out = normalize(text, UnicodeForm::nfc);
    CHECK(out.text == "字é字");
    CHECK(out.guard(0) == Guard::open);
    CHECK(out.guard(3) == Guard::closed);
    CHECK(out.guard(5) == Guard::closed);
  }
}

namespace {

std::string applied(const std::string& json, const std::string& text) {
  const Normalizer normalizer(parse_json(json, "f"), "f: normalizer");
  GrowthLimit growth = normalizer.growth_limit(text.size());
  return normalizer.apply({text, {}, Guard::open}, growth).text;
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

  TEST_CASE("guards follow the text") {
    GuardedText text;
    text.append("A b", Guard::open);
    text.append("İ c", Guard::closed);
    const Normalizer normalizer(
        parse_json(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"__"},
                       {"type":"Lowercase"},
                       {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
                   "f"),
        "f");
    GrowthLimit growth = normalizer.growth_limit(text.text.size());
    const GuardedText out = normalizer.apply(text, growth);
    CHECK(out.text == "__a▁bi\u0307▁c");
    const std::size_t cut = std::string("__a▁b").size();
    for (std::size_t at = 0; at < out.text.size(); ++at) {
      CHECK(out.guard(at) == (at < cut ? Guard::open : Guard::closed));
    }
  }

  TEST_CASE("steps that multiply the text end in an error, not in the machine's memory") {
    const auto chain = [](const std::string& step, int steps) {
      std::string list = step;
      for (int i = 1; i < steps; ++i) list += "," + step;
      return R"({"type":"Sequence","normalizers":[)" + list + "]}";
    };
    const std::string tenfold =
        R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
    const std::string spelled = R"({"type":"ByteLevel"})";
    const std::string prefix = R"({"type":"Prepend","prepend":")" + std::string(1000, 'x') + "\"}";
    for (const std::string& json : {chain(tenfold, 12), chain(spelled, 30), chain(prefix, 200)}) {
      CHECK(contains(model_error([&] { applied(json, "a \u00e9"); }),
                     "f: normalizer: its steps add more than 4352 bytes to a text of size 4;"));
    }
    CHECK(applied(chain(tenfold, 3), "a").size() == 1000);
    CHECK(applied(chain(tenfold, 1), std::string(100000, 'a')).size() == 1000000);
    CHECK(
        contains(error_of(chain(spelled, 257)), "f: normalizer: has 257 steps, the limit is 256"));
  }

  TEST_CASE("the largest growth that Unicode and spelled bytes make is allowed") {
    std::string text;
    for (int i = 0; i < 10000; ++i) text += "\uFDFA";
    const std::string json =
        R"({"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"ByteLevel"}]})";
    CHECK(applied(json, text).size() > 20 * text.size());
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(error_of(R"({"type":"Precompiled"})") ==
          "f: normalizer: the normalizer \"Precompiled\" is not supported");
    CHECK(contains(error_of(R"({})"), "\"type\" must be a string"));
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

}  // namespace normalizer_test
