#include "core/text/post_processor.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"

using namespace hyb;
using testing::contains;
using testing::model_error;

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

const std::string begin = R"({"SpecialToken":{"id":"<s>","type_id":0}})";
const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
const std::string end = R"({"SpecialToken":{"id":"</s>","type_id":0}})";

using Ids = std::vector<int>;

}  // namespace

TEST_SUITE("core/text/post_processor") {
  TEST_CASE("templates add tokens before and behind") {
    CHECK(applied("null") == Ids{5});
    CHECK(applied(R"({"type":"ByteLevel","trim_offsets":true})") == Ids{5});
    CHECK(applied(templated(begin + "," + text)) == Ids{1, 5});
    CHECK(applied(templated(begin + "," + text + "," + end)) == Ids{1, 5, 2, 3});
    CHECK(applied(R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1]})") ==
          Ids{1, 5, 2});
    CHECK(applied(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" +
                  templated(begin + "," + text) + "," + templated(end + "," + text) + "]}") ==
          Ids{2, 3, 1, 5});
  }

  TEST_CASE("what is unknown or damaged is an error that names it") {
    CHECK(contains(error_of(R"({"type":"Magic"})"),
                   "f: post_processor: the post-processor \"Magic\""));
    CHECK(contains(error_of(templated(begin)), "exactly once"));
    CHECK(contains(error_of(templated(text + "," + text)), "exactly once"));
    CHECK(contains(error_of(templated(R"({"Sequence":{"id":"B"}})")), "exactly once"));
    CHECK(contains(error_of(templated(begin + "," + text, "[10]")), "no token has the id 10"));
    CHECK(contains(error_of(templated(begin + "," + text, "[-1]")), "no token has the id -1"));
    CHECK(contains(error_of(templated(begin + "," + text, R"(["1"])")), "no token"));
    CHECK(contains(error_of(templated(R"({"SpecialToken":{"id":"<x>"}},)" + text)), "<x>"));
    CHECK(contains(error_of(R"({"type":"BertProcessing","sep":[1],"cls":["",1]})"), "[text, id]"));
  }
}
