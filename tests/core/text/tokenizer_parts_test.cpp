#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text/tokenizer_parts.h"
#include "tests/support/error_text.h"
#include "tests/support/tokenizer_text.h"

namespace tokenizer_parts_test {

using namespace hyb;
using testing::contains;
using testing::model_error;
using testing::TokenizerText;

namespace {

bool exists(TokenId token) { return index(token) < 10; }

std::vector<int> applied(const std::string& json) {
  std::vector<TokenId> tokens = {TokenId{5}};
  PostProcessor(parse_json(json, "f"), "f", exists).apply(tokens);
  std::vector<int> ids;
  for (const TokenId token : tokens) ids.push_back(index(token));
  return ids;
}

std::string error_of(const std::string& json) {
  return model_error([&] { PostProcessor(parse_json(json, "f"), "f: post_processor", exists); });
}

std::string templated(const std::string& single, const std::string& ids = "[1]") {
  return R"({"type":"TemplateProcessing","single":[)" + single +
         R"(],"special_tokens":{"<s>":{"id":"<s>","ids":)" + ids +
         R"(,"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[2,3]}}})";
}

const std::string start_item = R"({"SpecialToken":{"id":"<s>","type_id":0}})";
const std::string text_item = R"({"Sequence":{"id":"A","type_id":0}})";
const std::string end_item = R"({"SpecialToken":{"id":"</s>","type_id":0}})";

using Ids = std::vector<int>;

}  // namespace

TEST_SUITE("core/text/post_processor") {
  TEST_CASE("templates add tokens before and after") {
    CHECK(applied("null") == Ids{5});
    CHECK(applied(R"({"type":"ByteLevel","trim_offsets":true})") == Ids{5});
    CHECK(applied(templated(start_item + "," + text_item)) == Ids{1, 5});
    CHECK(applied(templated(start_item + "," + text_item + "," + end_item)) == Ids{1, 5, 2, 3});
    CHECK(applied(R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1]})") ==
          Ids{1, 5, 2});
    CHECK(applied(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" +
                  templated(start_item + "," + text_item) + "," +
                  templated(end_item + "," + text_item) + "]}") == Ids{2, 3, 1, 5});
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(contains(error_of(R"({"type":"Magic"})"),
                   "f: post_processor: the post-processor \"Magic\""));
    CHECK(contains(error_of(templated(start_item)), "exactly once"));
    CHECK(contains(error_of(templated(text_item + "," + text_item)), "exactly once"));
    CHECK(contains(error_of(templated(R"({"Sequence":{"id":"B"}})")), "exactly once"));
    CHECK(contains(error_of(templated(start_item + "," + text_item, "[10]")),
                   "no token has the id 10"));
    CHECK(contains(error_of(templated(start_item + "," + text_item, "[-1]")),
                   "no token has the id -1"));
    CHECK(contains(error_of(templated(start_item + "," + text_item, R"(["1"])")), "no token"));
    CHECK(contains(error_of(templated(R"({"SpecialToken":{"id":"<x>"}},)" + text_item)), "<x>"));
    CHECK(contains(error_of(R"({"type":"BertProcessing","sep":[1],"cls":["",1]})"), "[text, id]"));
  }
}

namespace {

std::string parts_error(const std::string& text) {
  return model_error([&] { TokenizerParts parts(read_tokenizer_json(text, "t.json")); });
}

}  // namespace

TEST_SUITE("core/text/tokenizer_parts") {
  TEST_CASE("models of other kinds are named in the error") {
    CHECK(parts_error(R"({"model":{"type":"Unigram","vocab":[["a",-1.5]],"unk_id":0}})") ==
          "t.json: model: the type \"Unigram\" is not supported; BPE is");
    CHECK(contains(parts_error(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})"),
                   "\"WordPiece\""));
    CHECK(contains(parts_error(R"({"model":{"type":"BPE","vocab":{"a":0}}})"), "needs \"vocab\""));
    CHECK(contains(parts_error(R"({"model":{"type":"BPE","vocab":[],"merges":[]}})"), "needs"));
    CHECK(
        contains(parts_error(R"({"model":{"vocab":{},"merges":[]}})"), "the vocabulary is empty"));
    CHECK(contains(parts_error("{}"), "t.json: model: an object"));
    CHECK(contains(parts_error("[]"), "an object"));
    CHECK(contains(parts_error("3"), "an object"));
    CHECK(
        parts_error(TokenizerText{.model = R"("unk_token":null)"}.text()).empty());  // no type: BPE
  }

  TEST_CASE("names of a tokenizer_config.json, as texts or objects") {
    TokenizerParts parts(read_tokenizer_json(
        TokenizerText{.added = R"([{"content":"<e>","id":9,"special":true}])"}.text(), "t.json"));
    parts.read_names(R"({"eos_token":{"content":"<e>","lstrip":false},"bos_token":"<unk>",
                         "pad_token":"nowhere","model_max_length":1e30,"x":NaN})",
                     "c.json");
    CHECK(parts.eos == TokenId{9});
    CHECK(parts.bos == TokenId{5});
    CHECK_FALSE(parts.pad);
    CHECK(contains(model_error([&] { parts.read_names(R"({"eos_token":1})", "c.json"); }),
                   "c.json: \"eos_token\""));
    CHECK(contains(model_error([&] { parts.read_names("[]", "c.json"); }), "c.json: an object"));
  }
}

}  // namespace tokenizer_parts_test
