#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "core/base/json.h"
#include "tests/core/constraint/answers.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace json_schema_test {

using namespace hyb;
using testing::contains;
using testing::error_text;

namespace {

Grammar grammar(const std::string& schema) {
  return Grammar::from_json_schema(parse_json(schema, "schema", {.depth_max = 600}), "s");
}

bool allows_under(const std::string& schema, std::string_view text) {
  return allows(grammar(schema), text);
}

std::string refusal(const std::string& schema) {
  return error_text([&] { grammar(schema); });
}

}  // namespace

TEST_SUITE("core/constraint/json_schema") {
  // Cases of the JSON-Schema-Test-Suite (MIT licence, github.com/json-schema-org), as published in
  // the source package of jsonschema 4.26.0 with the values written by Python's json.dumps.
  // `error`: what names the keyword that is not enforced. `spelled`: valid values that are spelled
  // otherwise than answers are.
  TEST_CASE("the suite of draft 2020-12") {
    std::istringstream file(testing::read_test_file("core/constraint/draft2020_12.jsonl"));
    int cases = 0, refused = 0;
    for (std::string line; std::getline(file, line);) {
      const Json row = parse_json(line, "draft2020_12.jsonl");
      CAPTURE(row["case"].get<std::string>());
      if (row.contains("error")) {
        const std::string error =
            error_text([&] { Grammar::from_json_schema(row["schema"], "s"); });
        CHECK(contains(error, row["error"].get<std::string>()));
        ++refused;
        continue;
      }
      const Grammar rules = Grammar::from_json_schema(row["schema"], "s");
      for (const char* kind : {"valid", "invalid", "spelled"}) {
        if (!row.contains(kind)) continue;
        for (const Json& text : row[kind]) {
          CAPTURE(text.get<std::string>());
          CHECK(allows(rules, text.get<std::string>()) == (kind == std::string("valid")));
          ++cases;
        }
      }
    }
    CHECK(cases > 900);
    CHECK(refused > 80);
  }

  TEST_CASE("ranges of numbers agree with arithmetic") {
    std::mt19937 random(4);
    const auto number = [&](int digits) {
      std::string text = random() % 2 ? "-" : "";
      text += std::to_string(random() % (random() % 2 ? 12 : 1200));
      if (digits > 0 && random() % 2) text += "." + std::to_string(random() % 30);
      return text;
    };
    for (int round = 0; round < 150; ++round) {
      const bool whole = random() % 2;
      const std::string low = number(1), high = number(1);
      const bool strict_low = random() % 2, strict_high = random() % 2;
      const std::string schema =
          std::string("{\"type\":\"") + (whole ? "integer" : "number") + "\",\"" +
          (strict_low ? "exclusiveMinimum" : "minimum") + "\":" + low + ",\"" +
          (strict_high ? "exclusiveMaximum" : "maximum") + "\":" + high + "}";
      CAPTURE(schema);
      std::optional<Grammar> rules;
      try {
        rules = grammar(schema);
      } catch (const Error&) {
      }
      std::vector<std::string> values{low, high, "0", "-0.5", "1200"};
      for (int i = 0; i < 60; ++i) values.push_back(number(whole ? 0 : 1));
      for (const std::string& text : values) {
        CAPTURE(text);
        const double value = std::stod(text), a = std::stod(low), b = std::stod(high);
        const bool fits = (strict_low ? value > a : value >= a) &&
                          (strict_high ? value < b : value <= b) && !(whole && contains(text, "."));
        // Zero is spelled without a sign, unless negative numbers are allowed.
        if (value == 0 && text[0] == '-') continue;
        CHECK((rules && allows(*rules, text)) == fits);
      }
    }
    CHECK(allows_under(R"({"type":"integer","multipleOf":7,"minimum":10})", "14"));
    CHECK_FALSE(allows_under(R"({"type":"integer","multipleOf":7,"minimum":10})", "7"));
    CHECK_FALSE(allows_under(R"({"type":"integer","multipleOf":7,"minimum":10})", "15"));
    CHECK(allows_under(R"({"multipleOf":0.01})", "3.25"));
    CHECK_FALSE(allows_under(R"({"multipleOf":0.01})", "3.255"));
    CHECK(contains(refusal(R"({"multipleOf":0.3})"), "multipleOf"));
    CHECK(contains(refusal(R"({"multipleOf":0})"), "multipleOf"));
  }

  TEST_CASE("lengths count characters, and escapes are one") {
    const std::string schema = R"({"type":"string","minLength":2,"maxLength":3})";
    CHECK(allows_under(schema, "\"é😀\""));
    CHECK(allows_under(schema, R"("\n\u00e9\ud83d\ude00")"));
    CHECK_FALSE(allows_under(schema, "\"é\""));
    CHECK_FALSE(allows_under(schema, "\"abcd\""));
    CHECK_FALSE(allows_under(schema, R"("\ud83d\ud83d")"));
    CHECK_FALSE(allows_under(schema, "\"ab\n\""));
    CHECK_FALSE(allows_under(schema, "\"\xC3\x28\""));
    CHECK(allows_under(R"({"type":"string","maxLength":65535})",
                       "\"" + std::string(65535, 'x') + '"'));
  }

  TEST_CASE("whatever is chosen of the bytes that are allowed, an answer is JSON in UTF-8") {
    const VocabularyTrie bytes = byte_vocabulary();
    std::mt19937 random(1);
    int ended = 0;
    for (const char* schema :
         {R"({"type":"string","maxLength":9})", R"({"type":["array","object"]})",
          R"({"type":"string","pattern":"^[^a-yB]{3}[\\n\\t\\\"x]?[éz😀]$"})"}) {
      CAPTURE(schema);
      const Grammar rules = grammar(schema);
      Constraint constraint(rules, bytes);
      for (int round = 0; round < 150; ++round) {
        GrammarMatcher matcher(constraint);
        std::string text;
        // Escapes and what ends a text are taken more often, so that walks meet them and end.
        while (!matcher.has_ended() && text.size() < 400) {
          const auto mask = matcher.mask();
          std::vector<int> choices;
          for (int token = 0; token < bytes.size(); ++token) {
            if (!(mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U)) continue;
            const bool often = token == '"' || token == '\\' || token == 'u' || token == ']' ||
                               token == '}' || token == bytes.size() - 1;
            choices.insert(choices.end(), often ? 20 : 1, token);
          }
          REQUIRE(!choices.empty());
          const int token = choices[random() % choices.size()];
          REQUIRE(matcher.accept(TokenId{token}));
          if (token < 256) text += static_cast<char>(token);
        }
        CAPTURE(text);
        if (!matcher.has_ended()) continue;
        ++ended;
        CHECK_NOTHROW(parse_json(text, "answer"));
      }
    }
    CHECK(ended > 300);
  }

  TEST_CASE("an object has its properties in order, others after them, and bounded white space") {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}},"required":["b"]})";
    CHECK(allows_under(schema, R"({"a":1,"b":[true,null]})"));
    CHECK(allows_under(schema, "{\n  \"a\": 1,\n  \"b\": {\"x\": []},\n  \"c\": 2\n}"));
    CHECK_FALSE(allows_under(schema, R"({"b":1,"a":1})"));
    CHECK_FALSE(allows_under(schema, R"({"a":1})"));
    CHECK_FALSE(allows_under(schema, R"({"b":1,})"));
    CHECK_FALSE(allows_under(schema, R"({"b":1  ,"c":1})"));
    CHECK_FALSE(allows_under(schema, R"({"b":1,"c":1,"a":"x"})"));
    CHECK_FALSE(allows_under(schema, R"({"b":1,"\u0061":"x"})"));
  }

  TEST_CASE("what is not enforced is an error that names it") {
    CHECK(contains(refusal(R"({"not":{}})"), "keyword 'not'"));
    CHECK(contains(refusal(R"({"items":{"uniqueItems":true}})"), "keyword 'uniqueItems'"));
    CHECK(contains(refusal(R"({"minProperties":2})"), "keyword 'minProperties'"));
    CHECK(refusal(R"({"minProperties":2,"required":["a","b"]})").empty());
    CHECK(contains(refusal(R"({"enum":[[12345678901234567890123]]})"), "1.2345678901234568e+22"));
    CHECK(contains(refusal(R"({"const":-12345678901234567890123})"), "64 bits"));
    CHECK(allows_under(R"({"const":18446744073709551615})", "18446744073709551615"));
    CHECK(contains(refusal(R"({"format":"colour"})"), "'format' does not know 'colour'"));
    CHECK(contains(refusal(R"x({"pattern":"(?=a)"})x"), "look-around"));
    CHECK(contains(refusal(R"({"$ref":"http://x/y"})"), "'http://x/y' is not within"));
    CHECK(contains(refusal(R"({"$ref":"#/nothing"})"), "there is no '#/nothing'"));
    CHECK(contains(refusal(R"({"oneOf":[{"type":"number"},{"minimum":3}]})"), "'oneOf'"));
    CHECK(contains(refusal(R"({"type":"text"})"), "there is no type \"text\""));
    CHECK(refusal(R"({"x-mine":{"not":{}},"title":"t","deprecated":true})").empty());
  }

  TEST_CASE("loops, contradictions and sizes end in errors") {
    CHECK(contains(refusal(R"({"$ref":"#"})"), "leads back"));
    CHECK(contains(refusal(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), "leads back"));
    CHECK(contains(refusal(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
                   "no text is allowed"));
    CHECK(contains(refusal(R"({"type":"integer","minimum":3,"maximum":2})"), "no text is allowed"));
    CHECK(contains(refusal(R"({"type":"string","maxLength":1000000})"), "from 0 to 100000"));
    CHECK(contains(refusal(R"({"pattern":"(a|b)*a(a|b){30}"})"), "states"));
    CHECK(contains(refusal(R"({"type":"array","minItems":1000000000})"), "from 0 to 100000"));
    std::string deep = "{}";
    for (int i = 0; i < 290; ++i) deep = R"({"type":"array","minItems":1,"items":)" + deep + "}";
    CHECK(contains(refusal(deep), "nests deeper"));
    std::string wide = R"({"allOf":[)";
    for (int i = 0; i < 12; ++i)
      wide += std::string(i ? "," : "") + R"({"anyOf":[{"minLength":1},{"minLength":2}]})";
    CHECK(contains(refusal(wide + "]}"), "too many alternatives"));
    std::string patterns;
    for (int i = 0; i < 3'000; ++i)
      patterns += std::string(i ? "," : "") + R"({"pattern":")" + (i % 2 ? "a" : "b") + "\"}";
    CHECK(contains(refusal(R"({"type":"string","allOf":[)" + patterns + "]}"), "in each other"));
    std::string optional;
    for (int i = 0; i < 1'100; ++i) optional += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":{}";
    CHECK(refusal(R"({"additionalProperties":false,"properties":{)" + optional + "}}").empty());
  }

  TEST_CASE("hundreds of thousands of properties and values end in an error") {
    std::string properties, values = "[0";
    for (int i = 0; i < 200'000; ++i) {
      properties += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":{}";
      values += "," + std::to_string(i);
    }
    const std::string list = "{\"enum\":" + values + "]}";
    CHECK(contains(refusal("{\"properties\":{" + properties + "}}"), "too many"));
    CHECK(contains(refusal("{\"allOf\":[" + list + "," + list + "]}"), "too many"));
  }

  TEST_CASE("numbers have at most 16 digits on each side, unless limits or values have more") {
    const std::string digits(16, '7');
    for (const char* type : {"integer", "number"}) {
      const std::string schema = std::string("{\"type\":\"") + type + "\"}";
      CHECK(allows_under(schema, "-" + digits));
      CHECK_FALSE(allows_under(schema, digits + "7"));
    }
    CHECK(allows_under("{}", digits + "." + digits + "e10"));
    CHECK_FALSE(allows_under("{}", "1." + digits + "7"));
    CHECK(allows_under(R"({"type":"integer","exclusiveMinimum":9999999999999999})",
                       "10000000000000000"));
    CHECK(
        allows_under(R"({"type":"integer","const":18446744073709551615})", "18446744073709551615"));
    CHECK(allows_under(R"({"minimum":1e-20})", "0.00000000000000000002"));
    CHECK_FALSE(allows_under(R"({"minimum":0.5,"maximum":1.0})", "0.5" + digits));
    CHECK(allows_under(R"({"type":"integer","multipleOf":1000})", "12000"));
    CHECK(refusal(R"({"type":"integer","multipleOf":100,"minimum":0})").empty());
    CHECK_FALSE(allows_under(R"({"multipleOf":0.1})", "1.50"));
  }

  TEST_CASE("values are equal as JSON's are, however they are written") {
    CHECK(contains(refusal(R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2,"a":1}}]})"),
                   "'oneOf'"));
    CHECK(allows_under(R"({"enum":[{"a":1,"b":[2]}],"const":{"b":[2],"a":1}})",
                       R"({"a":1,"b":[2]})"));
    const std::string numbers = R"({"allOf":[{"enum":[-1,5]},{"enum":[18446744073709551615,5]}]})";
    CHECK(allows_under(numbers, "5"));
    CHECK_FALSE(allows_under(numbers, "-1"));
    // Restrictions are of the value, not of its spelling.
    CHECK(allows_under(R"({"enum":[1e-7,0.5,-1],"minimum":0})", "1e-07"));
    CHECK_FALSE(allows_under(R"({"enum":[1e-7,0.5,-1],"minimum":0})", "-1"));
    CHECK(allows_under(R"({"type":"integer","enum":[1.0,2,2.5]})", "1.0"));
    CHECK_FALSE(allows_under(R"({"type":"integer","enum":[1.0,2,2.5]})", "2.5"));
    CHECK(allows_under(R"({"const":2.0,"multipleOf":2})", "2.0"));
    // Numbers that answers have no digits for are values all the same.
    CHECK(contains(
        refusal(R"({"oneOf":[{"type":"integer"},{"type":"integer","minimum":10000000000000000}]})"),
        "'oneOf'"));
  }

  TEST_CASE("host names of several labels, and addresses without a path") {
    const std::string host = R"({"type":"string","format":"hostname"})";
    const std::string label = std::string(63, 'a') + '.';
    CHECK(allows_under(host, R"("www.a.b.c-d.example.com")"));
    CHECK(allows_under(host, '"' + label + label + "com\""));
    CHECK_FALSE(allows_under(host, '"' + label + label + label + "com\""));
    CHECK(allows_under(host, R"("550e8400-e29b-41d4-a716-446655440000.eu.example.com")"));
    CHECK_FALSE(allows_under(host, R"("a..b")"));
    CHECK(allows_under(R"({"type":"string","format":"uri"})", R"("about:")"));
    CHECK(allows_under(R"({"type":"string","format":"uri"})", R"("mailto:?subject=x")"));
  }

  TEST_CASE("alternatives that begin alike, of the schema itself, nest to the limit of depth") {
    std::string options = R"({"type":"integer"})", text = "1";
    for (const char* name : {"add", "sub", "mul"})
      options += R"(,{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},")" +
                 std::string(name) + R"(":{"const":1}},"required":["left","right",")" + name +
                 R"("],"additionalProperties":false})";
    for (int i = 0; i < 100; ++i)
      text = R"({"left":)" + text + R"(,"right":2,")" + (i % 2 ? "sub" : "mul") + R"(":1})";
    CHECK(allows_under("{\"anyOf\":[" + options + "]}", text));
    CHECK_FALSE(allows_under("{\"anyOf\":[" + options + "]}", text + "}"));
  }

  TEST_CASE("texts and values one after the other, and alternatives of them") {
    const Json alternatives = Json::parse(R"([
        [{"text":"<call>","schema":{"type":"integer"}},
         {"text":" and ","schema":{"type":"string"},"after":"</call>"}], [{"text":"none"}]])");
    const Grammar parts = Grammar::from_parts(alternatives, "s");
    CHECK(allows(parts, "<call>12 and \"a\\n\"</call>"));
    CHECK(allows(parts, "none"));
    CHECK_FALSE(allows(parts, "<call>1.5 and \"a\"</call>"));
    CHECK_FALSE(allows(parts, "<call>12</call>"));

    const Json tagged = Json::parse(R"([[{"text":"<f>"},
        {"text":"<k>","options":["a","b<"],"after":"</k>","optional":true},
        {"text":"<v>","until":"</v>","after":"</v>"},{"text":"</f>"}]])");
    const Grammar between = Grammar::from_parts(tagged, "s", "<f>");
    for (const char* text :
         {"", "any text, even <f and <k>", "<f><v></v></f>", "é <f><k>b<</k><v>a </ v></v></f> x",
          "<f><v>1</v></f><f><k>a</k><v>\n</v></f>", "<<f><v><f></v></f><"}) {
      CHECK_MESSAGE(allows(between, text), text);
    }
    for (const char* text : {"<f>", "a<f>b", "<f><k>c</k><v></v></f>", "<f><v></v><k>a</k></f>",
                             "<f><v></v></v></f>", "<f><k>a</k></f>"}) {
      CHECK_FALSE_MESSAGE(allows(between, text), text);
    }
  }

  TEST_CASE("one of several objects, by a key whose values differ") {
    const std::string schema = R"({"oneOf":[
        {"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"integer"}},
         "required":["kind","n"],"additionalProperties":false},
        {"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}]})";
    CHECK(allows_under(schema, R"({"kind":"a","n":1})"));
    CHECK(allows_under(schema, R"({"kind":"b","n":"x"})"));
    CHECK_FALSE(allows_under(schema, R"({"kind":"a","n":"x"})"));
  }
}

}  // namespace json_schema_test
