#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text/tokenizer_json.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace tokenizer_json_test {

using namespace hyb;
using testing::contains;
using testing::model_error;
using testing::TokenizerText;

TEST_SUITE("core/text/json_fields") {
  TEST_CASE("fields of the right type are read, null counts as missing") {
    const Json json = parse_json(R"({"s":"x","t":true,"i":-7,"l":[1],"n":null})", "f");
    const JsonFields fields(json, "f: here");
    CHECK(fields.text("s") == "x");
    CHECK(fields.text_or("n", "y") == "y");
    CHECK(fields.flag_or("t", false));
    CHECK(fields.flag_or("none", true));
    CHECK(fields.integer("i") == -7);
    CHECK(fields.array("l").size() == 1);
    CHECK(fields.at("none").is_null());
  }

  TEST_CASE("other types are errors that name the object and the key") {
    const Json json = parse_json(R"({"s":1,"i":1.5,"u":18446744073709551615})", "f");
    const JsonFields fields(json, "f: here");
    CHECK(model_error([&] { fields.text("s"); }) == "f: here: \"s\" must be a string");
    CHECK(contains(model_error([&] { fields.text_or("s", ""); }), "\"s\""));
    CHECK(contains(model_error([&] { fields.flag_or("s", true); }), "true or false"));
    CHECK(contains(model_error([&] { fields.integer("i"); }), "integer"));
    CHECK(contains(model_error([&] { fields.integer("u"); }), "integer"));
    CHECK(contains(model_error([&] { fields.array("s"); }), "list"));
    CHECK(contains(model_error([&] { JsonFields(json["s"], "f: s"); }), "f: s: an object"));
  }
}

namespace {

std::string error_of(const std::string& text) {
  return model_error([&] { read_tokenizer_json(text, "t.json"); });
}

std::string vocab_error(const std::string& vocab) {
  return error_of(TokenizerText{.vocab = vocab}.text());
}
std::string merges_error(const std::string& merges) {
  return error_of(TokenizerText{.merges = merges}.text());
}

}  // namespace

TEST_SUITE("core/text/tokenizer_json") {
  TEST_CASE("the tables are kept out of the tree, in both spellings") {
    for (const char* merges : {R"(["#version: 0.2","a b","ab c"])", R"([["a","b"],["ab","c"]])"}) {
      const TokenizerFile file = read_tokenizer_json(TokenizerText{.merges = merges}.text(), "f");
      CHECK(file.vocabulary.count() == 7);
      CHECK(file.vocabulary.find("abc") == TokenId{4});
      REQUIRE(file.merges.size() == 2);
      CHECK(file.left(file.merges[1]) == "ab");
      CHECK(file.right(file.merges[1]) == "c");
      CHECK(file.both(file.merges[1]) == "abc");
      CHECK(file.rest.at("model").at("vocab").empty());
      CHECK(file.rest.at("model").at("merges").empty());
      CHECK(file.rest.at("model").at("type") == "BPE");
    }
  }

  TEST_CASE("only the model's own vocab and merges are tables") {
    const TokenizerFile file = read_tokenizer_json(
        R"({"vocab":{"x":"y"},"model":{"deep":{"vocab":{"x":null},"merges":[1]},"vocab":{"a":0}}})",
        "f");
    CHECK(file.vocabulary.count() == 1);
    CHECK(file.rest.at("vocab").at("x") == "y");
    CHECK(file.rest.at("model").at("deep").at("merges").at(0) == 1);
  }

  TEST_CASE("the pieces of a pair may contain spaces, those of a line may not") {
    const TokenizerFile file =
        read_tokenizer_json(TokenizerText{.merges = R"([["a b"," "]])"}.text(), "f");
    CHECK(file.left(file.merges.at(0)) == "a b");
    CHECK(contains(merges_error(R"(["a b c"])"), "entry 0"));
  }

  TEST_CASE("ids are unique and in range") {
    CHECK(contains(vocab_error(R"({"a":-1})"), "the id of \"a\" is out of range"));
    CHECK(contains(vocab_error(R"({"a":4194304})"), "ids are 0 to 4194303"));
    CHECK(contains(vocab_error(R"({"a":18446744073709551615})"), "out of range"));
    CHECK(contains(vocab_error(R"({"a":1.0})"), "not an integer"));
    CHECK(contains(vocab_error(R"({"a":"1"})"), "not an integer"));
    CHECK(contains(vocab_error(R"({"a":[1]})"), "not an integer"));
    CHECK(contains(vocab_error(R"({"a":{"b":1}})"), "not an integer"));
    CHECK(contains(vocab_error(R"({"a":null})"), "not an integer"));
    CHECK(contains(vocab_error(R"({"a":1,"a":2})"), "duplicate key \"a\""));
    CHECK(contains(vocab_error(R"({"a":1,"b":1})"), "id 1 is given to \"b\""));
  }

  TEST_CASE("merges are pairs of texts") {
    for (const char* merges : {R"(["ab"])", R"([["a"]])", R"([["a","b","c"]])", R"([[["a"],"b"]])",
                               R"([1])", R"([{"a":"b"}])", R"([null])", R"([["a",1]])"}) {
      CAPTURE(merges);
      CHECK(contains(merges_error(merges), "t.json: model.merges: entry 0 is neither"));
    }
    CHECK(contains(merges_error(R"([" b"])"), "empty part"));
    CHECK(contains(merges_error(R"([["a",""]])"), "empty part"));
  }

  TEST_CASE("invalid JSON is an error with its position") {
    CHECK(contains(error_of("{"), "t.json: not valid JSON at byte"));
    CHECK(contains(error_of(""), "not valid JSON"));
    CHECK(contains(error_of(R"({"a":1,"a":2})"), "duplicate key"));
    CHECK(contains(error_of(std::string(100, '[')), "deeper"));
    CHECK(contains(error_of(R"({"model":{"vocab":{"\ud800":1}}})"), "not valid JSON"));
  }
}

}  // namespace tokenizer_json_test
